//! Answering by HTTP what all covered processes have counted, for Prometheus: GET /metrics, and nothing else.
//!
//! A thread takes connections. Each has a thread of its own, a few at a time, one request, and some seconds: who sends
//! nothing or reads nothing keeps no other one waiting. On a loopback port the request has to name this machine as its
//! host, so that a page in a browser cannot have it read by another name.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::select::Selection;
use super::{metrics, signals};
use crate::run::complain;
use faultless_measure::pages::Folded;
use faultless_measure::pages::find::{self, All, Missing};

/// Where requests come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket with a path.
    Socket(PathBuf),
    /// A port of this machine.
    Port(SocketAddr),
}

/// Reads one.
pub fn address(text: &str) -> Result<Address, String> {
    if text.contains('/') {
        return Ok(Address::Socket(text.into()));
    }
    let port: SocketAddr =
        text.parse().map_err(|_| "neither a path with a slash nor ADDRESS:PORT, as 127.0.0.1:9464".to_owned())?;
    if !port.ip().is_loopback() {
        return Err(format!("{} is no loopback address: what programs do is not for other machines", port.ip()));
    }
    Ok(Address::Port(port))
}

/// Requests at the same time.
const MOST: usize = 8;
/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request.
const REQUEST: usize = 8 << 10;
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Headers that a request may have.
const HEADERS: usize = 64;

/// A connection.
trait Stream: Read + Write + Send {
    /// How long a read or a write may take from now on.
    fn set_timeout(&self, time: Duration) -> io::Result<()>;
    /// Says that nothing follows.
    fn end_answer(&self) -> io::Result<()>;
    /// The same connection, to be closed while it is waited for.
    fn twin(&self) -> io::Result<Box<dyn Stream>>;
    /// Ends it, also for who waits for it.
    fn close(&self);
}

macro_rules! streams {
    ($($type:ty),+) => { $(
        impl Stream for $type {
            fn set_timeout(&self, time: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
            }

            fn end_answer(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }

            fn twin(&self) -> io::Result<Box<dyn Stream>> {
                Ok(Box::new(self.try_clone()?))
            }

            fn close(&self) {
                let _ = self.shutdown(Shutdown::Both);
            }
        }
    )+ };
}

streams!(TcpStream, UnixStream);

enum Listener {
    Socket(UnixListener, Bound),
    Port(TcpListener),
}

/// The file of a socket, which goes with the last listener.
struct Bound {
    path: PathBuf,
    inode: u64,
}

impl Bound {
    fn remove(&self) {
        // Another command may have put its own there.
        if self.path.symlink_metadata().is_ok_and(|file| file.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a socket of this path is listened to. It waits for no other process: with `EAGAIN` there is a listener that
/// has not taken earlier connections.
fn probe(path: &Path) -> io::Result<()> {
    let name = path.as_os_str().as_bytes();
    // SAFETY: zero bytes are a value of the structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    // A zero ends the name.
    if name.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    address.sun_path.iter_mut().zip(name).for_each(|(to, byte)| *to = *byte as libc::c_char);
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a new descriptor, which this function alone has; then an address of this size.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let size = size_of_val(&address) as libc::socklen_t;
        match libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Listener {
    fn new(address: &Address) -> Result<Self> {
        match address {
            Address::Port(port) => Ok(Self::Port(TcpListener::bind(port).with_context(|| port.to_string())?)),
            Address::Socket(path) => Self::socket(path).with_context(|| path.display().to_string()),
        }
    }

    fn socket(path: &Path) -> Result<Self> {
        match path.symlink_metadata() {
            Ok(file) if !file.file_type().is_socket() => bail!("something else is there"),
            Ok(_) => match probe(path).map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) | Err((Some(libc::EAGAIN), _)) => bail!("another command listens there"),
                Err((Some(libc::ECONNREFUSED), _)) => std::fs::remove_file(path)?,
                // Its listener has just ended.
                Err((Some(libc::ENOENT), _)) => {}
                Err((Some(libc::EPROTOTYPE), _)) => bail!("something else is there"),
                Err((_, error)) => {
                    return Err(error).context("whether another command listens there cannot be told");
                }
            },
            Err(_) => {}
        }
        // For this user alone from the beginning.
        // SAFETY: no pointers; no other thread makes files now.
        let mask = unsafe { libc::umask(0o177) };
        let bound = UnixListener::bind(path);
        // SAFETY: as above.
        unsafe { libc::umask(mask) };
        let listener = bound?;
        let file = path.symlink_metadata()?;
        debug_assert_eq!(file.permissions().mode() & 0o777, 0o600);
        Ok(Self::Socket(listener, Bound { path: path.to_owned(), inode: file.ino() }))
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Socket(listener, _) => Ok(Box::new(listener.accept()?.0)),
            Self::Port(listener) => Ok(Box::new(listener.accept()?.0)),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(_, bound) => write!(f, "the socket {}, path /metrics", bound.path.display()),
            Self::Port(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "http://{address}/metrics"),
                Err(_) => f.write_str("/metrics"),
            },
        }
    }
}

/// Answers until a signal ends it.
pub fn serve(address: &Address, selection: &Selection) -> Result<()> {
    if !find::is_proc_there() {
        return Err(Missing::Unseen.into());
    }
    signals::hold();
    let listener = Arc::new(Listener::new(address)?);
    complain(&format!("metrics are at {listener}"));
    let (taken, of_port) = (Arc::clone(&listener), matches!(address, Address::Port(_)));
    let source = Arc::new(Source { selection: selection.clone(), said: Mutex::default(), of_port });
    thread::Builder::new().name("listen".into()).spawn(move || take(&taken, &source))?;
    while !signals::wait(Duration::from_secs(3600)) {}
    // The other threads end with the process.
    if let Listener::Socket(_, bound) = &*listener {
        bound.remove();
    }
    Ok(())
}

/// A connection that has a thread.
struct UnderWay {
    stream: Box<dyn Stream>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether anything came.
    has_sent: AtomicBool,
    is_over: AtomicBool,
}

/// Whether there is room for one more. The oldest that has sent nothing makes room, so that idle connections shut out no client.
fn make_room(under_way: &mut Vec<UnderWay>) -> bool {
    under_way.retain(|one| !one.state.is_over.load(Ordering::Relaxed));
    if under_way.len() < MOST {
        return true;
    }
    let idle = under_way.iter().position(|one| !one.state.has_sent.load(Ordering::Relaxed));
    idle.inspect(|at| under_way.remove(*at).stream.close()).is_some()
}

/// Takes connections, a few at a time.
fn take(listener: &Listener, source: &Arc<Source>) {
    let mut under_way = Vec::new();
    loop {
        let accepted = listener.accept().and_then(|stream| Ok((stream.twin()?, stream)));
        let Ok((twin, mut stream)) = accepted else {
            // For want of descriptors: others end meanwhile.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if !make_room(&mut under_way) {
            continue;
        }
        let (source, state) = (Arc::clone(source), Arc::<State>::default());
        under_way.push(UnderWay { stream: twin, state: Arc::clone(&state) });
        let of_thread = Arc::clone(&state);
        let answering = thread::Builder::new().name("answer".into()).spawn(move || {
            let _ = answer(&mut *stream, &source, &of_thread.has_sent);
            // Its twin may stay for long.
            stream.close();
            of_thread.is_over.store(true, Ordering::Relaxed);
        });
        if answering.is_err() {
            state.is_over.store(true, Ordering::Relaxed);
        }
    }
}

/// What is answered.
struct Source {
    selection: Selection,
    /// What was said last of processes that cannot be read: once is enough.
    said: Mutex<String>,
    of_port: bool,
}

impl Source {
    fn text(&self) -> String {
        let All { found: mut processes, mut wrong, closed } = find::all();
        if closed > 0 {
            wrong.push(Missing::Closed(closed).to_string());
        }
        let news = wrong.join("\n");
        if let Ok(mut said) = self.said.lock()
            && *said != news
        {
            wrong.iter().for_each(|wrong| complain(wrong));
            *said = news;
        }
        let counters: Vec<_> = processes.iter_mut().map(|covered| covered.counters().clone()).collect();
        metrics::text(&self.selection, &processes, &counters, &Folded::default())
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Nothing(&'static str),
}

/// What follows the head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Sent,
    /// A HEAD asks for the head alone, whatever the answer is.
    Left,
}

/// Reads a request; `None`: it is not complete.
fn asked(bytes: &[u8], of_port: bool) -> Option<(Asked, Body)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some((Asked::Nothing("400 Bad Request"), Body::Sent)),
    }
    let body = if request.method == Some("HEAD") { Body::Left } else { Body::Sent };
    Some((wanted(&request, of_port), body))
}

/// What a complete request is for.
fn wanted(request: &httparse::Request<'_, '_>, of_port: bool) -> Asked {
    let hosts: Vec<_> = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host")).collect();
    // Which of two counts, others might see otherwise.
    if hosts.len() > 1 {
        return Asked::Nothing("400 Bad Request");
    }
    let (named, path) = parts(request.path.unwrap_or_default());
    let named = named.into_iter().map(str::as_bytes).chain(hosts.iter().map(|host| host.value));
    if of_port && !named.into_iter().all(is_own) {
        return Asked::Nothing("403 Forbidden");
    }
    match (request.method, path.split('?').next()) {
        (_, path) if path != Some("/metrics") => Asked::Nothing("404 Not Found"),
        (Some("GET" | "HEAD"), _) => Asked::Metrics,
        _ => Asked::Nothing("405 Method Not Allowed"),
    }
}

/// The host in what is asked for, if it is in the absolute form, as proxies send it; and the rest.
fn parts(target: &str) -> (Option<&str>, &str) {
    const SCHEME: &str = "http://";
    match target.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(host), path)
        }
        _ => (None, target),
    }
}

/// Whether a host, with or without its port, is this machine.
fn is_own(host: &[u8]) -> bool {
    let host = String::from_utf8_lossy(host);
    let is_loopback =
        |name: &str| name.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    [Some(&*host), name.map(|(name, _)| name)]
        .into_iter()
        .flatten()
        .any(|name| name.eq_ignore_ascii_case("localhost") || is_loopback(name))
}

fn answer(stream: &mut dyn Stream, source: &Source, has_sent: &AtomicBool) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let hurry = |stream: &dyn Stream| {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { stream.set_timeout(left) }
    };
    let mut bytes = Vec::new();
    let (asked, body) = loop {
        if let Some(asked) = asked(&bytes, source.of_port) {
            break asked;
        }
        if bytes.len() >= REQUEST {
            break (Asked::Nothing("431 Request Header Fields Too Large"), Body::Sent);
        }
        hurry(stream)?;
        let mut part = [0; 1024];
        match stream.read(&mut part)? {
            0 => return Ok(()),
            n => {
                has_sent.store(true, Ordering::Relaxed);
                bytes.extend(&part[..n]);
            }
        }
    };
    let (status, kind, text) = match asked {
        Asked::Metrics => ("200 OK", TYPE, source.text()),
        Asked::Nothing(status) => (status, "text/plain", format!("{status}: GET /metrics is all there is\n")),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    let all = if body == Body::Left { head } else { head + &text };
    let mut rest = all.as_bytes();
    while !rest.is_empty() {
        hurry(stream)?;
        match stream.write(rest)? {
            0 => break,
            n => rest = &rest[n..],
        }
    }
    stream.flush()?;
    // What is left unread would have the kernel drop the answer.
    stream.end_answer()?;
    let mut rest = [0; 1024];
    for _ in 0..2 * REQUEST / rest.len() {
        hurry(stream)?;
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: Option<(Asked, Body)> = Some((Asked::Metrics, Body::Sent));

    fn nothing(status: &'static str) -> Option<(Asked, Body)> {
        Some((Asked::Nothing(status), Body::Sent))
    }

    #[test]
    fn only_this_machine_is_listened_to() {
        assert_eq!(address("./x"), Ok(Address::Socket("./x".into())));
        assert_eq!(address("127.0.0.1:9464"), Ok(Address::Port("127.0.0.1:9464".parse().unwrap())));
        assert!(address("[::1]:0").is_ok());
        assert!(address("0.0.0.0:9464").unwrap_err().contains("no loopback"));
        assert!(["", "9464", "localhost", "x:y"].iter().all(|text| address(text).is_err()));
    }

    #[test]
    fn a_request_is_for_metrics_or_for_nothing() {
        let get = |line: &str| asked(format!("{line}\r\nHost: 127.0.0.1:9464\r\n\r\n").as_bytes(), true);
        assert_eq!(get("GET /metrics HTTP/1.1"), METRICS);
        assert_eq!(get("GET /metrics?a=b HTTP/1.0"), METRICS);
        assert_eq!(get("HEAD /metrics HTTP/1.1"), Some((Asked::Metrics, Body::Left)));
        let status = |line: &str| match get(line) {
            Some((Asked::Nothing(status), Body::Sent)) => status[..3].parse().unwrap(),
            _ => 0,
        };
        assert_eq!(get("HEAD / HTTP/1.1"), Some((Asked::Nothing("404 Not Found"), Body::Left)));
        let lines = ["GET / HTTP/1.1", "GET /metrics/x HTTP/1.1", "POST /metrics HTTP/1.1", "\0\u{1}"];
        assert_eq!(lines.map(status), [404, 404, 405, 400]);
        assert_eq!(asked(b"GET /metr", true), None);
        let host = |name: &str, of_port| {
            asked(format!("GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes(), of_port)
        };
        assert_eq!(host("evil.example:9464", true), nothing("403 Forbidden"));
        assert_eq!(host("evil.example", false), METRICS);
        for name in ["localhost", "LocalHost:1", "[::1]:9464", "::1", "127.0.0.2"] {
            assert_eq!(host(name, true), METRICS, "{name}");
        }
        let two = host("localhost\r\nHost: localhost", false);
        assert_eq!(two, nothing("400 Bad Request"));
    }

    #[test]
    fn a_request_may_name_its_host_itself() {
        let get = |target: &str, host: &str| {
            asked(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), true)
        };
        for target in ["http://localhost:9464/metrics", "HTTP://127.0.0.1/metrics?a=b"] {
            assert_eq!(get(target, "localhost"), METRICS, "{target}");
        }
        let refused = nothing("403 Forbidden");
        assert_eq!(get("http://evil.example/metrics", "localhost"), refused);
        assert_eq!(get("http://localhost/metrics", "evil.example"), refused);
        assert_eq!(get("http://localhost", "localhost"), nothing("404 Not Found"));
    }
}
