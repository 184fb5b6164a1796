//! `shardvisor status`: what the daemon on this box says of itself on its health port. It speaks for the whole box,
//! whichever shard answers.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use crate::{
    cli::Status,
    commands::{print, print_json},
    config::{Config, plain},
    exit::Failure,
};

/// A daemon that lives answers in far less.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks, and prints the answer.
pub(super) fn run(config: &Config, options: &Status) -> Result<(), Failure> {
    let address = SocketAddr::new(reachable(config.health.bind), port(config)?);
    let status = get(address, "/status")?;
    if options.json {
        return print_json(&status);
    }
    for line in lines(&status) {
        print(line)?;
    }
    Ok(())
}

/// The address by which this machine reaches what is bound to `bind`.
fn reachable(bind: IpAddr) -> IpAddr {
    match bind {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        bind => bind,
    }
}

/// The configured port, or the free one that the daemon took.
fn port(config: &Config) -> Result<u16, Failure> {
    if config.health.port != 0 {
        return Ok(config.health.port);
    }
    let path = config.data_dir.join("health.port");
    let gave_up = |why: String| Failure::GaveUp(format!("{}: {why}: is shardvisor running?", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| gave_up(plain(&error)))?;
    text.trim().parse().map_err(|_| gave_up("holds no port".to_owned()))
}

fn get(address: SocketAddr, path: &str) -> Result<Value, Failure> {
    let gave_up = |what: String| Failure::GaveUp(format!("http://{address}{path}: {what}: is shardvisor running?"));
    let answer = exchange(address, path).map_err(|error| gave_up(plain(&error)))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| gave_up("no HTTP answer".to_owned()))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        return Err(gave_up(format!("HTTP status {status:?}")));
    }
    serde_json::from_str(body).map_err(|_| gave_up("the answer is not shardvisor's".to_owned()))
}

/// HTTP/1.0, so that the answer comes whole and the connection ends with it.
fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(64 << 20).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The answer for people: one line a value, sections and list items by their place.
fn lines(status: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    flatten(String::new(), status, &mut lines);
    lines
}

fn flatten(place: String, value: &Value, lines: &mut Vec<String>) {
    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| flatten(below(name), value, lines)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| flatten(format!("{place}[{at}]"), value, lines));
        }
        Value::String(text) => lines.push(format!("{place}: {text}")),
        Value::Null => {}
        other => lines.push(format!("{place}: {other}")),
    }
}
