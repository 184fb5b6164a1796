//! What is in a package, read from cargo: nothing that makes a client trust whom it should not.

use std::process::Command;

/// Everything behind the package, with the features that are on in it. (The tree of features itself names those that a
/// dependency asks for, not those that the package's own turn on.)
fn features(extra: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--package", "shardvisor", "--edges", "normal", "--prefix", "none", "--format", "{p} {f}"])
        .args(["--offline", "--locked"])
        .args(extra)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// WhatsApp's chain of certificates is checked in every build but one for tests, and that one is seen here.
#[test]
fn no_package_skips_a_certificate() {
    let package = features(&[]);
    assert!(package.contains("whatsapp-rust"), "WhatsApp is in the package");
    let skips: Vec<&str> = package.lines().filter(|line| line.contains("danger")).collect();
    assert!(skips.is_empty(), "{skips:?}");
    assert!(features(&["--features", "loopback"]).contains("danger-skip-cert-chain-verify"), "this test can see it");
}

/// The demonstration needs no WhatsApp, and does not wait for it to be compiled.
#[test]
fn the_demonstration_alone_has_no_whatsapp() {
    let demo = features(&["--no-default-features", "--features", "demo"]);
    assert!(!demo.contains("whatsapp-rust") && !demo.contains("object_store"), "{demo}");
}
