//! Ways to reach a server, and servers that are none for us.

use std::{process::Command, time::Duration};

use shard::registry::{Registry, Resource};

use super::{Server, at, connection, exists, held, holder, job, refused, request, unavailable};

/// Contract: I4. Field report R23.
#[tokio::test]
async fn a_login_is_made_and_a_wrong_one_is_refused_without_being_repeated() {
    let Some(server) = Server::start(&["--requirepass", "open sesame"]) else { return };
    let host = format!("127.0.0.1:{}", server.port());
    let me = holder("a", 1);
    let good = at(&format!("redis://:open%20sesame@{host}/5"), "a", 1, Duration::ZERO);
    held(&good, &me, Resource::Slot(1)).await;
    let mut redis = connection(&format!("redis://:open%20sesame@{host}/5")).await;
    assert!(super::asked::<bool>(&mut redis, &["EXISTS", "shardvisor:lease:slot/1"]).await, "in its database");
    let _: String = super::asked(&mut redis, &["ACL", "SETUSER", "u", "on", ">hush", "~shardvisor:*", "+@all"]).await;
    held(&at(&format!("redis://u:hush@{host}/5"), "a", 1, Duration::ZERO), &me, Resource::Slot(1)).await;
    for (login, said) in [(":hush@", "user name or password"), ("x:hush@", "user name or password"), ("", "needed")] {
        let cause = refused(at(&format!("redis://{login}{host}"), "a", 1, Duration::ZERO).layout().await);
        assert!(cause.contains(said) && !cause.contains("hush") && cause.contains(&host), "{cause}");
    }
    let cause = refused(at(&format!("redis://:open%20sesame@{host}/99"), "a", 1, Duration::ZERO).layout().await);
    assert!(cause.contains("out of range"), "{cause}");
    let _: String = super::asked(&mut redis, &["ACL", "SETUSER", "u", "-evalsha"]).await;
    let cause = refused(at(&format!("redis://u:hush@{host}/5"), "a", 1, Duration::ZERO).publish_layout(1).await);
    assert!(cause.contains("may not"), "{cause}");
}

#[tokio::test]
async fn a_socket_serves_as_well() {
    let Some(server) = Server::start(&["--unixsocket", "redis.sock"]) else { return };
    let path = server.dir().join("redis.sock");
    assert!(exists(&path));
    let registry = at(&format!("redis+unix://{}?db=3", path.display()), "a", 1, Duration::ZERO);
    held(&registry, &holder("a", 1), Resource::Slot(1)).await;
}

#[tokio::test]
async fn a_cluster_is_refused_with_one_line() {
    let bus = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").port();
    let Some(server) = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]) else { return };
    let cause = refused(server.registry("a", 1).layout().await);
    assert!(cause.contains("cluster") && cause.contains("Sentinel"), "{cause}");
}

#[tokio::test]
async fn keys_of_another_program_are_not_touched() {
    let Some(server) = Server::start(&[]) else { return };
    let (registry, me) = (server.registry("a", 1), holder("a", 1));
    for key in ["shardvisor:guard:j", "shardvisor:lease:slot/1"] {
        let _: i64 = server.ask(&["RPUSH", key, "theirs"]).await;
    }
    let cause = refused(registry.reserve(request("j", &me, 1, None)).await);
    assert!(cause.contains("something else"), "{cause}");
    refused(registry.claim(&me, &[Resource::Slot(1)], true).await);
    assert_eq!(server.ask::<i64>(&["LLEN", "shardvisor:guard:j"]).await, 1);
    refused(registry.cancel(&request("j", &me, 1, None).fence, &job("j")).await);
}

#[tokio::test]
async fn what_is_no_redis_is_unavailable() {
    let Some(_) = Server::start(&[]) else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    unavailable(at(&format!("redis://{address}"), "a", 1, Duration::ZERO).layout().await);
}

const TRUSTED: &str = "SSL_CERT_FILE";

/// A server's certificate is judged by the certificates of the system, or those that `SSL_CERT_FILE` names: this test runs
/// itself again with and without its own authority among them.
#[tokio::test]
async fn tls_is_spoken_to_a_server_that_is_trusted_alone() {
    if let Ok(url) = std::env::var("SHARDVISOR_TEST_TLS") {
        let outcome = at(&url, "a", 1, Duration::ZERO).claim(&holder("a", 1), &[Resource::Slot(1)], false).await;
        println!("outcome: {outcome:?}");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").current_dir(dir.path()).args(arguments.split(' ')).output();
        output.is_ok_and(|output| output.status.success())
    };
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test";
    std::fs::write(dir.path().join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost").expect("written");
    let made = openssl(&format!("{make} -keyout ca.key -out ca.crt"))
        && openssl(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=redis -keyout key -out csr",
        )
        && openssl("x509 -req -in csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out crt");
    if !made {
        assert!(std::env::var_os("SERVERS").is_none(), "no openssl here");
        println!("SKIPPED: no openssl here");
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").port();
    let (crt, key, ca, tls_port) = (file("crt"), file("key"), file("ca.crt"), port.to_string());
    let arguments = ["--tls-port", &tls_port, "--tls-cert-file", &crt, "--tls-key-file", &key];
    let more = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"];
    let Some(_server) = Server::start(&[&arguments[..], &more[..]].concat()) else { return };
    let run = |trusted: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        let name = "redis::reaching::tls_is_spoken_to_a_server_that_is_trusted_alone";
        command.args(["--exact", name, "--nocapture"]);
        command.env("SHARDVISOR_TEST_TLS", format!("rediss://127.0.0.1:{port}"));
        match trusted {
            Some(file) => command.env(TRUSTED, file),
            None => command.env_remove(TRUSTED),
        };
        String::from_utf8_lossy(&command.output().expect("run").stdout).into_owned()
    };
    let said = run(Some(&ca));
    assert!(said.contains("outcome: Ok([Held("), "{said}");
    let said = run(None);
    assert!(said.contains("Refused(") && said.contains("certificate"), "{said}");
}
