//! Node and Java.

use faultless_e2e::{Case, need, script};

fn node(name: &str) {
    if let Some(node) = need("node") {
        Case::new(node).args([script(name)]).same();
    }
}

#[test]
fn node_json() {
    node("json.js");
}

#[test]
fn node_worker_threads() {
    node("workers.js");
}

#[test]
fn node_bundler() {
    node("bundle.js");
}

fn java(collector: &str) {
    let (Some(java), Some(_)) = (need("java"), need("javac")) else { return };
    // One source file, compiled in memory by the launcher: javac runs under the library as well.
    let heap = ["-Xms64m", "-Xmx768m", collector];
    Case::new(java).args(heap).args([script("Allocate.java")]).same();
}

#[test]
fn java_serial() {
    java("-XX:+UseSerialGC");
}

#[test]
fn java_parallel() {
    java("-XX:+UseParallelGC");
}

#[test]
fn java_g1() {
    java("-XX:+UseG1GC");
}

#[test]
fn java_z() {
    java("-XX:+UseZGC");
}

#[test]
fn java_heap_exhausted() {
    let (Some(java), Some(_)) = (need("java"), need("javac")) else { return };
    Case::new(java).args(["-Xmx48m", "-XX:+UseSerialGC"]).args([script("Allocate.java")]).fails().same();
}
