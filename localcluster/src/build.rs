//! Building the pinned binaries, once, into the user's cache directory.

use crate::clock;
use crate::error::Error;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kubernetes version of the modules, as the binaries are to call themselves.
const KUBERNETES: &str = "v1.36.3";
/// Room for Go's module and build caches and the binaries, when nothing is there yet, in MiB.
const COLD_BUILD_MIB: u64 = 9 * 1024;
/// Lines of Go's output that an error repeats.
const LINES_TOLD: usize = 12;

/// The built binaries.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    #[cfg(test)]
    pub(crate) fn at(directory: PathBuf) -> Self {
        Binaries { directory }
    }

    /// Path of one of them.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// One `go build`: in which module, which packages, and what it makes.
struct Step {
    module: &'static str,
    packages: &'static [&'static str],
    makes: &'static [&'static str],
    /// Where below the directory of binaries they go, with a slash at the end.
    into: &'static str,
    /// More arguments of `go build`.
    flags: &'static [&'static str],
    /// Whether it holds C.
    cgo: bool,
}

impl Step {
    const fn new(module: &'static str, packages: &'static [&'static str], makes: &'static [&'static str]) -> Self {
        Step {
            module,
            packages,
            makes,
            into: "",
            flags: &[],
            cgo: false,
        }
    }
}

/// Binaries that are built together and filed together.
struct Set {
    /// What it is, for messages.
    what: &'static str,
    /// Begins the name of its directory.
    prefix: &'static str,
    /// How long it takes at most, for messages.
    takes: &'static str,
    steps: &'static [Step],
    /// What it is made from; a change asks for another build.
    sources: &'static [&'static str],
}

/// The control plane and the simulated nodes. In order of weight: the first takes minutes, as everything else shares its libraries.
const CONTROL_PLANE: Set = Set {
    what: "the control plane",
    prefix: "bin",
    takes: "with an empty Go cache it takes about 9 minutes on two cores",
    steps: &[
        Step::new(
            ".",
            &[
                "k8s.io/kubernetes/cmd/kube-apiserver",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-scheduler",
                "k8s.io/kubernetes/cmd/kubectl",
            ],
            &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"],
        ),
        Step::new(".", &["go.etcd.io/etcd/server/v3"], &["etcd"]),
        Step::new(".", &["./provisioner"], &["provisioner"]),
        Step::new("kwok", &["sigs.k8s.io/kwok/cmd/kwok"], &["kwok"]),
    ],
    sources: &["go.mod", "go.sum", "kwok/go.mod", "kwok/go.sum", "provisioner/main.go"],
};

/// What a real node needs beside the control plane.
const NODE: Set = Set {
    what: "a real node",
    prefix: "node",
    takes: "after the control plane it takes about 3 minutes on two cores",
    steps: &[
        Step::new(".", &["k8s.io/kubernetes/cmd/kubelet"], &["kubelet"]),
        Step {
            flags: &["-tags=no_btrfs"],
            ..Step::new(
                "node",
                &[
                    "github.com/containerd/containerd/v2/cmd/containerd",
                    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                ],
                &["containerd", "containerd-shim-runc-v2"],
            )
        },
        Step {
            cgo: true,
            ..Step::new("node", &["github.com/opencontainers/runc"], &["runc"])
        },
        Step {
            into: "cni/",
            ..Step::new(
                "node",
                &[
                    "github.com/containernetworking/plugins/plugins/main/bridge",
                    "github.com/containernetworking/plugins/plugins/ipam/host-local",
                ],
                &["bridge", "host-local"],
            )
        },
        Step::new(
            "node",
            &["./bridge", "./images", "./runtime"],
            &["bridge", "images", "runtime"],
        ),
        Step {
            into: "images.d/",
            ..Step::new("node", &["./app", "./pause"], &["app", "pause"])
        },
    ],
    sources: &[
        "go.mod",
        "go.sum",
        "node/go.mod",
        "node/go.sum",
        "node/app/main.go",
        "node/bridge/main.go",
        "node/images/main.go",
        "node/pause/main.go",
        "node/runtime/main.go",
    ],
};

/// Helm, which only the tests of the chart need.
const HELM: Set = Set {
    what: "Helm",
    prefix: "helm",
    takes: "after the control plane it takes about a minute on two cores",
    steps: &[Step::new("helm", &["helm.sh/helm/v4/cmd/helm"], &["helm"])],
    sources: &["helm/go.mod", "helm/go.sum"],
};

/// The directory that holds the Go modules.
fn modules() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The user's cache directory for Flotilla: `$FLOTILLA_CACHE_DIR`, `$XDG_CACHE_HOME/flotilla`, or `~/.cache/flotilla`.
pub(crate) fn cache_directory() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("FLOTILLA_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|d| d.join("flotilla")))
        .or_else(|| variable("HOME").map(|d| d.join(".cache/flotilla")))
        .unwrap_or_else(|| std::env::temp_dir().join("flotilla"))
}

/// Builds what is not built yet, saying what it does on standard error, and returns where the binaries are. Two processes that ask at
/// the same time build once.
pub fn build() -> Result<Binaries, Error> {
    build_set(&CONTROL_PLANE)
}

/// The same for what a real node needs beside them.
pub fn build_node() -> Result<Binaries, Error> {
    build_set(&NODE)
}

/// Path of the pinned Helm, built if it is not there yet.
pub fn helm() -> Result<PathBuf, Error> {
    Ok(build_set(&HELM)?.directory.join("helm"))
}

fn build_set(set: &Set) -> Result<Binaries, Error> {
    let key = set.key()?;
    let cache = cache_directory();
    fs::create_dir_all(&cache).map_err(|e| Error::io("create", &cache, e))?;
    let directory = cache.join(format!("{}-{key}", set.prefix));
    if directory.exists() {
        return Ok(Binaries { directory });
    }
    let lock = cache.join("build.lock");
    let file = fs::File::create(&lock).map_err(|e| Error::io("create", &lock, e))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|e| Error::io("lock", &lock, e.into()))?;
    if !directory.exists() {
        build_into(set, &cache, &directory)?;
    }
    Ok(Binaries { directory })
}

fn build_into(set: &Set, cache: &Path, directory: &Path) -> Result<(), Error> {
    check_go()?;
    check_room(cache)?;
    let partial = cache.join(format!("building-{}", std::process::id()));
    fs::create_dir_all(&partial).map_err(|e| Error::io("create", &partial, e))?;
    eprintln!(
        "building {} for Kubernetes {KUBERNETES} into {}",
        set.what,
        directory.display()
    );
    eprintln!("this happens once; {}", set.takes);
    let begun = clock::now();
    for (number, step) in set.steps.iter().enumerate() {
        eprintln!("  [{}/{}] {} …", number + 1, set.steps.len(), step.makes.join(", "));
        let step_begun = clock::now();
        run(step, &partial)?;
        eprintln!("        {:.0} s", step_begun.elapsed().as_secs_f32());
    }
    fs::rename(&partial, directory).map_err(|e| Error::io("move the binaries to", directory, e))?;
    eprintln!("built in {:.0} s", begun.elapsed().as_secs_f32());
    Ok(())
}

fn run(step: &Step, into: &Path) -> Result<(), Error> {
    let mut command = Command::new("go");
    command
        .arg("build")
        .arg("-trimpath")
        .arg(format!("-ldflags={}", ldflags()))
        .args(step.flags);
    if step.cgo {
        command.env("CGO_ENABLED", "1");
    } else if step.module == "node" {
        // Images hold nothing beside the program, so it must be whole.
        command.env("CGO_ENABLED", "0");
    }
    // A trailing slash makes Go put several binaries into a directory; one alone is named after its file.
    let target = if step.makes.len() == 1 {
        into.join(step.into).join(step.makes[0])
    } else {
        into.join(step.into).join("")
    };
    command
        .arg("-o")
        .arg(target)
        .args(step.packages)
        .current_dir(modules().join(step.module));
    let output = command.output().map_err(|e| Error::io("run go in", modules(), e))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("no space left on device") {
        let what = format!("build {}", step.makes.join(", "));
        return Err(Error::DiskFull {
            what,
            path: into.to_owned(),
            needed_mib: COLD_BUILD_MIB,
        });
    }
    Err(Error::Build {
        what: step.makes.join(", "),
        output: last_lines(&text, LINES_TOLD),
    })
}

/// Version stamps. Without them the binaries call themselves v0.0.0, and clients that read /version stumble.
fn ldflags() -> String {
    let stamps = [
        ("gitVersion", KUBERNETES),
        ("gitMajor", "1"),
        ("gitMinor", "36"),
        ("gitTreeState", "clean"),
        ("gitCommit", "0000000000000000000000000000000000000000"),
        ("buildDate", "2026-01-01T00:00:00Z"),
    ];
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in stamps {
            // Writing to a String cannot fail.
            let _ = write!(flags, " -X {package}.{name}={value}");
        }
    }
    flags
}

impl Set {
    /// What the binaries depend on, as a short hash.
    fn key(&self) -> Result<String, Error> {
        let mut hash = Sha256::new();
        for file in self.sources {
            let path = modules().join(file);
            hash.update(fs::read(&path).map_err(|e| Error::io("read", &path, e))?);
        }
        hash.update(ldflags());
        let digest = hash.finalize();
        let short = u64::from_be_bytes([0, 0, digest[0], digest[1], digest[2], digest[3], digest[4], digest[5]]);
        Ok(format!("{short:012x}"))
    }
}

/// The Go version that the modules ask for.
fn needed() -> Result<String, Error> {
    let path = modules().join("go.mod");
    let text = fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
    Ok(text
        .lines()
        .find_map(|l| l.strip_prefix("go "))
        .unwrap_or("1.26")
        .trim()
        .to_owned())
}

fn check_go() -> Result<(), Error> {
    let needed = needed()?;
    let output = Command::new("go").args(["env", "GOVERSION"]).output();
    let found = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout)
            .trim()
            .trim_start_matches("go")
            .to_owned(),
        Err(_) => return Err(Error::GoMissing { needed }),
    };
    if is_older(&found, &needed) {
        Err(Error::GoTooOld { found, needed })
    } else {
        Ok(())
    }
}

/// Compares versions such as 1.26.8, number by number.
fn is_older(found: &str, needed: &str) -> bool {
    let numbers = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .map(|part| {
                part.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>()
                    .parse()
                    .unwrap_or(0)
            })
            .collect()
    };
    let (mut found, mut needed) = (numbers(found), numbers(needed));
    let length = found.len().max(needed.len());
    found.resize(length, 0);
    needed.resize(length, 0);
    found < needed
}

/// A cold build wants room; a warm one little, and Go says so itself when it runs out.
fn check_room(cache: &Path) -> Result<(), Error> {
    let is_warm = Command::new("go")
        .args(["env", "GOMODCACHE"])
        .output()
        .is_ok_and(|output| {
            let modules = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
            modules.join(format!("k8s.io/kubernetes@{KUBERNETES}")).exists()
        });
    let stats = rustix::fs::statvfs(cache).map_err(|e| Error::io("look at the disk of", cache, e.into()))?;
    let free_mib = stats.f_bavail * stats.f_frsize / (1024 * 1024);
    let needed_mib = if is_warm { 1024 } else { COLD_BUILD_MIB };
    if free_mib < needed_mib {
        return Err(Error::DiskFull {
            what: "build the control plane".to_owned(),
            path: cache.to_owned(),
            needed_mib,
        });
    }
    Ok(())
}

/// The end of a text, for messages.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_number_by_number() {
        for (found, needed, older) in [
            ("1.26.8", "1.26.0", false),
            ("1.26", "1.26.0", false),
            ("1.9.9", "1.26", true),
            ("1.25.12", "1.26.0", true),
            ("2.0", "1.26", false),
            ("1.27rc1", "1.26", false),
            ("", "1.26", true),
        ] {
            assert_eq!(is_older(found, needed), older, "{found} {needed}");
        }
    }

    #[test]
    fn the_sentences_say_what_to_do() {
        let old = Error::GoTooOld {
            found: "1.20".into(),
            needed: needed().unwrap(),
        }
        .to_string();
        assert!(old.contains("Go 1.20 is too old") && old.contains("go.dev/dl"), "{old}");
        let full = Error::io("write", Path::new("/x"), std::io::ErrorKind::StorageFull.into()).to_string();
        assert!(
            full.contains("is full") && full.contains("FLOTILLA_CACHE_DIR"),
            "{full}"
        );
    }

    #[test]
    fn the_keys_are_stable() {
        assert_eq!(CONTROL_PLANE.key().unwrap(), CONTROL_PLANE.key().unwrap());
        assert_ne!(CONTROL_PLANE.key().unwrap(), NODE.key().unwrap());
    }
}
