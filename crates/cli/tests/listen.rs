//! `faultless stat --openmetrics --listen`: what is answered, to whom, and what becomes of requests that are wrong.

mod common;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Scratch, faultless, library, text};
use faultless_testkit::Killed;

/// One that answers, and where it says that it does.
struct Exporter {
    child: Killed,
    place: String,
}

impl Exporter {
    fn start(address: &str) -> Self {
        let mut command = faultless(["stat", "--openmetrics", "--listen", address, "-e", "malloc_served"]);
        let mut child = Killed(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let mut place = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut place).unwrap();
        assert!(place.contains("metrics are at"), "{place}");
        Self { child, place }
    }

    /// The address behind `http://`.
    fn port(&self) -> &str {
        self.place.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address")
    }

    /// By this signal; its status.
    fn end(&mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

/// What is answered to these bytes.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A covered program that has a block and waits.
fn covered() -> Killed {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=8M", "count=2"]).env("LD_PRELOAD", library()).env("FAULTLESS_BUDGET", "64M");
    command.env_remove("FAULTLESS_STATS").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(command.spawn().unwrap());
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[test]
fn a_port_answers_what_is_counted_now() {
    let mut exporter = Exporter::start("127.0.0.1:0");
    let connect = || TcpStream::connect(exporter.port()).unwrap();
    // One that sends nothing keeps no other waiting.
    let _silent = connect();
    let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let program = covered();
    let answer = ask(connect(), get);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    let metric = format!("faultless_malloc_served_total{{pid=\"{}\",command=\"dd\"}} 1\n", program.id());
    assert!(body.contains(&metric) && body.ends_with("# EOF\n"), "{body}");
    let head = ask(connect(), "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    let head = ask(connect(), "HEAD / HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404") && head.ends_with("\r\n\r\n"), "no body: {head}");
    let status = |request: &str| ask(connect(), request).split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: other.example\r\n\r\n"), "403");
    assert_eq!(status("\u{1}\r\n\r\n"), "400");
    assert_eq!(status(&format!("GET /{}", "x".repeat(8 << 10))), "431");
    // A request in pieces.
    let mut slow = connect();
    slow.write_all(&get.as_bytes()[..20]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(ask(slow, &get[20..]).starts_with("HTTP/1.1 200"));
    let port = exporter.port().to_owned();
    let out = faultless(["stat", "--openmetrics", "--listen", &port]).output().unwrap();
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains(&port), "{}", text(&out.stderr));
    assert_eq!(exporter.end("-INT"), Some(0));
}

/// More than are answered at the same time.
#[test]
fn connections_that_send_nothing_shut_out_nobody() {
    let exporter = Exporter::start("127.0.0.1:0");
    let idle: Vec<_> = (0..40).map(|_| TcpStream::connect(exporter.port()).unwrap()).collect();
    let answer = ask(TcpStream::connect(exporter.port()).unwrap(), "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(idle);
}

#[test]
fn a_socket_is_its_users_alone_and_goes_at_the_end() {
    let scratch = Scratch::new("listen");
    let path = scratch.0.join("metrics");
    let name = path.to_str().unwrap();
    // One that a killed command left.
    drop(UnixListener::bind(&path).unwrap());
    let mut exporter = Exporter::start(name);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let get = "GET /metrics HTTP/1.0\r\nHost: any\r\n\r\n";
    assert!(ask(UnixStream::connect(&path).unwrap(), get).ends_with("# EOF\n"));
    let refused = |path: &str, why: &str| {
        let out = faultless(["stat", "--openmetrics", "--listen", path]).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains(why), "{}", text(&out.stderr));
    };
    refused(name, "another command listens there");
    assert_eq!(exporter.end("-TERM"), Some(0));
    assert!(!path.exists());
    std::fs::write(&path, "mine").unwrap();
    refused(name, "something else is there");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

/// One that takes no connections is waited for by none.
#[test]
fn a_listener_that_does_not_answer_is_told() {
    let scratch = Scratch::new("silent");
    let path = scratch.0.join("metrics");
    let listener = UnixListener::bind(&path).unwrap();
    // The next connection fills the queue.
    rustix::net::listen(&listener, 0).unwrap();
    let _waits = UnixStream::connect(&path).unwrap();
    let name = path.to_str().unwrap();
    let out = faultless(["stat", "--openmetrics", "--listen", name]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("another command listens there"), "{}", text(&out.stderr));
}

/// It is not said that a command listens where that is not known.
#[test]
fn a_socket_that_cannot_be_asked_is_told() {
    let scratch = Scratch::new("unasked");
    let path = scratch.0.join("metrics");
    let says = |command: &mut Command, why: &str| {
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains(why), "{}", text(&out.stderr));
        assert!(path.exists());
    };
    let args = ["stat", "--openmetrics", "--listen", path.to_str().unwrap()];
    let datagrams = UnixDatagram::bind(&path).unwrap();
    says(&mut faultless(args), "something else is there");
    drop((datagrams, std::fs::remove_file(&path)));
    drop(UnixListener::bind(&path).unwrap());
    std::fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    // Root may ask anything: another user may not.
    let copy = scratch.0.join("faultless");
    std::fs::copy(env!("CARGO_BIN_EXE_faultless"), &copy).unwrap();
    let mut command = Command::new(copy);
    if rustix::process::getuid().is_root() {
        command.uid(65534);
    }
    says(command.args(args), "cannot be told: Permission denied");
}

#[test]
fn other_machines_are_not_answered() {
    for (args, why) in [
        (["--openmetrics", "--listen", "0.0.0.0:0"], "no loopback address"),
        (["--openmetrics", "--listen", "9464"], "neither a path"),
        (["--json", "--listen", "127.0.0.1:0"], "--listen"),
    ] {
        let out = faultless(["stat"]).args(args).output().unwrap();
        assert!(out.status.code() == Some(125) && text(&out.stderr).contains(why), "{}", text(&out.stderr));
    }
}
