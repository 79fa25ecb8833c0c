//! Databases: each test starts its own server, reachable by a socket in a directory of its own.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use faultless_e2e::{Case, find, need, scratch, script, skip};

#[test]
fn redis_saves_in_the_background_under_load() {
    let (Some(sh), Some(_), Some(_)) = (need("sh"), need("redis-server"), need("redis-cli")) else { return };
    let run = Case::new(sh).args([script("redis.sh")]).same_and_served();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("saved and loaded: same"), "{text}");
}

#[test]
fn sqlite() {
    let (Some(sqlite), Some(_)) = (need("sqlite3"), need("sh")) else { return };
    let sql = std::fs::read_to_string(script("queries.sql")).expect("the script");
    Case::new(sqlite).args([":memory:", sql.as_str()]).same_and_served();
    Case::new(find("sqlite3").expect("found before")).args(["f.db", sql.as_str()]).same_and_served();
}

/// The newest PostgreSQL's programs, which Debian keeps out of the search path.
fn postgres() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    debian.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("pgbench").exists()).max()
}

/// The user and group that PostgreSQL is to run as: it refuses root.
fn unprivileged() -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    Some((fields.next()??, fields.next()??))
}

#[test]
fn postgresql() {
    let (Some(sh), Some(bin)) = (need("sh"), postgres()) else {
        need("pg_ctlcluster");
        return;
    };
    let dir = scratch();
    let mut case = Case::new(sh).dir(dir.path()).args([script("postgres.sh")]).args([&bin]);
    if dir.path().metadata().expect("our own directory").uid() == 0 {
        if dir.path().ancestors().any(|dir| dir.metadata().is_ok_and(|data| data.mode() & 1 == 0)) {
            return skip("PostgreSQL refuses root, and no other user can get at the temporary directory");
        }
        let Some((uid, gid)) = unprivileged() else {
            return skip("PostgreSQL refuses root, and has no user here");
        };
        std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).expect("root may do that");
        std::fs::copy(script("postgres.sh"), dir.path().join("run.sh")).expect("a copy that the user can read");
        case = Case::new(need("sh").expect("found before"))
            .dir(dir.path())
            .args(["run.sh"])
            .args([&bin])
            .user(uid, gid);
    }
    let run = case.same();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("clients done: 0") && text.contains("balanced: t"), "{text}");
}
