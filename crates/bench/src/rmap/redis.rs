//! A database that saves itself by fork: redis, with as much data, and a client that writes meanwhile.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::loops::{Kept, Times};
use crate::process;
use crate::programs::find::on_path;
use crate::undo::Undo;

/// Bytes of a value: with what redis adds, it fills a page.
const VALUE: usize = 4000;
const PAGE: u64 = 4096;
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the writer alone is measured.
const ALONE: Duration = Duration::from_secs(1);

/// A server of our own. It ends with this value.
struct Server {
    child: Child,
    socket: PathBuf,
    /// With a child of it that saves.
    killed: Option<Undo>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.killed = None;
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path, dir: &Path) -> io::Result<Self> {
        let socket = dir.join("redis");
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(program);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--rdbcompression", "no"]);
        command.args(["--enable-debug-command", "yes", "--dbfilename", "redis.rdb", "--dir"]).arg(dir);
        command.arg("--unixsocket").arg(&socket);
        command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        process::tie(&mut command);
        let child = command.spawn()?;
        let pid = child.id();
        let killed = Some(Undo::by(move || process::kill_group(pid)));
        let server = Self { child, socket, killed };
        let begun = Instant::now();
        loop {
            match server.client().and_then(|mut client| client.ask(&[b"PING"])) {
                Ok(_) => return Ok(server),
                Err(error) if begun.elapsed() > LIMIT => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn client(&self) -> io::Result<Client> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Client(BufReader::new(stream)))
    }
}

/// A connection.
struct Client(BufReader<UnixStream>);

impl Client {
    /// Sends a command; the answer, which is a word or a text.
    fn ask(&mut self, words: &[&[u8]]) -> io::Result<String> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)?;
        answer(&mut self.0)
    }

    /// A number that the server knows of itself.
    fn number(&mut self, section: &str, name: &str) -> io::Result<u64> {
        let text = self.ask(&[b"INFO", section.as_bytes()])?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = value.and_then(|value| value.trim().parse().ok());
        number.ok_or_else(|| io::Error::other(format!("redis does not say {name}")))
    }
}

/// What a server answers.
fn answer(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let text = line.trim_end();
    let (kind, rest) = text.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    match (kind, rest.parse::<usize>()) {
        ("+", _) => Ok(rest.to_owned()),
        ("$", Ok(length)) => {
            let mut bytes = vec![0; length + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(length);
            String::from_utf8(bytes).map_err(io::Error::other)
        }
        _ => Err(io::Error::other(format!("redis: {text}"))),
    }
}

/// Where the server is.
pub fn program() -> Result<PathBuf, String> {
    on_path("redis-server", "Debian's redis-server")
}

/// Fills a server with `bytes` bytes. How long its commands take with nothing else going on, and beside a save.
pub fn once(program: &Path, dir: &Path, bytes: u64) -> Result<[Kept; 2], String> {
    run(program, dir, bytes / PAGE).map_err(|error| error.to_string())
}

fn run(program: &Path, dir: &Path, keys: u64) -> io::Result<[Kept; 2]> {
    let server = Server::start(program, dir)?;
    let mut client = server.client()?;
    let [count, size] = [keys.to_string(), VALUE.to_string()];
    client.ask(&[b"DEBUG", b"POPULATE", count.as_bytes(), b"key", size.as_bytes()])?;
    let alone = beside(&server, keys, || {
        thread::sleep(ALONE);
        Ok(Kept::default())
    })?;
    let saved = beside(&server, keys, || save(&mut client))?;
    let _ = std::fs::remove_file(dir.join("redis.rdb"));
    Ok([alone, saved])
}

fn save(client: &mut Client) -> io::Result<Kept> {
    let begun = Instant::now();
    client.ask(&[b"BGSAVE"])?;
    while client.number("persistence", "rdb_bgsave_in_progress")? != 0 {
        if begun.elapsed() > LIMIT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let saved = begun.elapsed().as_secs_f64();
    let taken = client.number("stats", "latest_fork_usec")? as f64 / 1e6;
    let copied = client.number("persistence", "rdb_last_cow_size")?;
    match client.ask(&[b"INFO", b"persistence"])?.contains("rdb_last_bgsave_status:ok") {
        true => Ok(Kept { taken, saved, copied, ..Kept::default() }),
        false => Err(io::Error::other("redis could not save")),
    }
}

/// Does something while a client writes to keys in a random order, without a pause.
fn beside(server: &Server, keys: u64, work: impl FnOnce() -> io::Result<Kept>) -> io::Result<Kept> {
    let ends = AtomicBool::new(false);
    let mut client = server.client()?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut times, mut random, value) = (Times::new(), 0x9E37_79B9_7F4A_7C15_u64, [7; VALUE]);
            while !ends.load(Ordering::Relaxed) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = format!("key:{}", (random >> 11) % keys);
                let begun = Instant::now();
                client.ask(&[b"SET", key.as_bytes(), &value])?;
                times.add(begun.elapsed().as_nanos() as u64);
            }
            Ok::<_, io::Error>(times)
        });
        let kept = work();
        ends.store(true, Ordering::Relaxed);
        let times = writer.join().expect("panics abort")?;
        Ok(Kept { writes: times.percentiles(), count: times.count(), ..kept? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_words_or_texts_and_anything_else_is_an_error() {
        let said = |bytes: &[u8]| answer(&mut &*bytes);
        assert_eq!(said(b"+OK\r\n").unwrap(), "OK");
        assert_eq!(said(b"$5\r\na\r\nbc\r\n").unwrap(), "a\r\nbc");
        for wrong in [&b"-ERR no\r\n"[..], b"", b"$5\r\nab", b"$-1\r\n", b"\r\n", b":1\r\n"] {
            assert!(said(wrong).is_err());
        }
    }

    #[test]
    fn a_server_saves_beside_a_writer() {
        let program = match program() {
            Ok(program) => program,
            Err(why) => return faultless_testkit::skip_optional(why),
        };
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&program, dir.path()).unwrap();
        let mut client = server.client().unwrap();
        client.ask(&[b"DEBUG", b"POPULATE", b"100", b"key", b"4000"]).unwrap();
        let kept = beside(&server, 100, || save(&mut client)).unwrap();
        assert!(kept.count > 0 && kept.saved > 0.0 && kept.taken > 0.0, "{kept:?}");
        assert!(std::fs::metadata(dir.path().join("redis.rdb")).unwrap().len() > 100 * 4000);
        assert!(client.ask(&[b"GET", b"key:99"]).unwrap().len() == 4000);
        assert!(client.ask(&[b"NOTHING"]).is_err());
    }
}
