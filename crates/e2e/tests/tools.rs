//! Command-line programs: what they write is compared byte for byte.

use std::path::Path;
use std::process::Command;

use faultless_e2e::{Case, find, need, scratch, script};

/// A file of `bytes` bytes that compresses somewhat.
fn data(path: &Path, bytes: usize) {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let text: Vec<u8> = (0..bytes).map(|i| if (i >> 9) % 3 == 0 { next() } else { next() % 16 + b'a' }).collect();
    std::fs::write(path, text).expect("a file of our own");
}

#[test]
fn zstd() {
    let Some(zstd) = need("zstd") else { return };
    let dir = scratch();
    data(&dir.path().join("data"), 24 << 20);
    let case = Case::new(&zstd).dir(dir.path());
    let args = ["-q", "-f", "-T2", "-12", "--long=24", "data", "-o", "data.zst"];
    case.clone().args(args).yields("data.zst").same_and_served();
    let back = case.args(["-q", "-d", "-f", "data.zst", "-o", "back"]).yields("back").same();
    assert!(
        back.files[0] == std::fs::read(dir.path().join("data")).expect("what was written"),
        "not the same data"
    );
}

#[test]
fn imagemagick() {
    if need("identify").is_none() {
        return;
    }
    // Its full name first: other programs are called convert, too.
    let names = ["convert-im6.q16", "magick", "convert"];
    let convert = names.iter().find_map(|name| find(name)).expect("one of them was found");
    let args = "-size 2600x2000 plasma:red-blue -resize 70% -gaussian-blur 0x3 -rotate 33 -colorspace HSL -depth 8 rgb:out";
    let case = Case::new(convert).args(["-seed", "5"]).args(args.split(' ')).yields("out");
    assert!(case.same_and_served().files[0].len() > 1 << 20);
}

#[test]
fn ffmpeg() {
    let Some(ffmpeg) = need("ffmpeg") else { return };
    let args = "-nostdin -v error -f lavfi -i testsrc2=s=1280x720:d=1 -f lavfi -i sine=d=1 -vf scale=960:-2,hue=s=0.5 \
                -c:v mpeg4 -q:v 4 -c:a aac -threads 2 -fflags +bitexact -flags +bitexact -y out.mkv";
    let run = Case::new(ffmpeg).args(args.split_whitespace()).yields("out.mkv").same_and_served();
    assert!(run.files[0].len() > 100_000);
}

#[test]
fn stress_ng_verifies_its_memory() {
    let Some(stress) = need("stress-ng") else { return };
    let dir = scratch();
    let args = "--vm 1 --vm-bytes 256M --verify -t 3s --quiet".split(' ');
    Case::new(&stress).dir(dir.path()).args(args).same();
    for stressor in ["--mmap 1 --mmap-bytes 64M", "--malloc 1 --malloc-bytes 64M", "--mremap 1 --mremap-bytes 64M"]
    {
        let args = stressor.split(' ').chain(["--verify", "-t", "1s", "--quiet"]);
        Case::new(&stress).dir(dir.path()).args(args).same();
    }
}

#[test]
fn git_gc() {
    let (Some(git), Some(sh)) = (need("git"), need("sh")) else { return };
    let dir = scratch();
    let made =
        Command::new(sh).arg(script("repository.sh")).current_dir(dir.path()).output().expect("a shell runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // A fresh copy for each run, packed and looked at.
    let packed = "rm -rf copy && cp -r made copy && cd copy && \"$0\" -c gc.auto=0 -c pack.threads=1 gc -q --aggressive --prune=now \
                  && \"$0\" fsck --strict && \"$0\" count-objects -v | grep -v size && \"$0\" rev-list --objects --all \
                  && sha256sum .git/objects/pack/*.pack";
    Case::new(need("sh").expect("found before")).dir(dir.path()).args(["-c", packed]).args([git]).same();
}
