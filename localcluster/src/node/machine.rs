//! What a real node needs of the machine, and the settings of the kernel that it must leave as they were.

use crate::build::cache_directory;
use crate::error::Error;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Capabilities that root may have been denied, by their numbers: making interfaces, and mounting.
const CAPABILITIES: &[(u32, &str)] = &[(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];
/// What the kubelet changes.
const SETTINGS: &[&str] = &[
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
];
/// Begins the name of every node's cgroup.
pub(super) const CGROUP: &str = "flotilla-node-";
/// Controllers without which the kubelet does not start.
const CONTROLLERS: &[&str] = &["cpu", "cpuset", "memory", "pids"];

/// Why no real node can run on this machine; `None` if one can.
pub fn real_node_unavailable() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("a real node needs Linux".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("a real node needs root".to_owned());
    }
    missing_capability()
        .or_else(missing_program)
        .or_else(cgroups_unusable)
        .or_else(layers_unusable)
}

fn missing_capability() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0);
    let (_, name) = CAPABILITIES.iter().find(|(number, _)| held & (1 << number) == 0)?;
    Some(format!(
        "a real node needs the capability {name}, which this root does not have"
    ))
}

/// The kubelet mounts by a program; runc holds C.
fn missing_program() -> Option<String> {
    let is_missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    let program = ["mount", "umount", "cc"]
        .into_iter()
        .find(|program| is_missing(program))?;
    Some(format!(
        "a real node needs the program `{program}`, which was not found"
    ))
}

fn cgroups_unusable() -> Option<String> {
    let hierarchies = hierarchies();
    if !hierarchies.iter().any(|h| h.controls("memory")) {
        return Some(
            "a real node needs cgroups with the controller memory; none are mounted below /sys/fs/cgroup".to_owned(),
        );
    }
    let probe = format!("flotilla-probe-{}", std::process::id());
    hierarchies.iter().find_map(|hierarchy| {
        let path = hierarchy.path.join(&probe);
        let made = fs::create_dir(&path).and_then(|()| fs::remove_dir(&path));
        made.err()
            .map(|e| format!("a real node needs to make cgroups: {}: {e}", path.display()))
    })
}

/// Layers of images lie upon each other by a file system that does not lie upon itself.
fn layers_unusable() -> Option<String> {
    const OVERLAY: i64 = 0x794c_7630;
    let cache = cache_directory();
    let there = cache.ancestors().find(|directory| directory.exists())?;
    let stats = rustix::fs::statfs(there).ok()?;
    let is_overlay = stats.f_type == OVERLAY;
    is_overlay.then(|| {
        format!(
            "a real node needs its files on a disk, but {} is an overlay; set FLOTILLA_CACHE_DIR to a directory on another file system",
            there.display()
        )
    })
}

/// A mounted hierarchy of cgroups.
struct Hierarchy {
    path: PathBuf,
    is_unified: bool,
}

impl Hierarchy {
    fn controls(&self, controller: &str) -> bool {
        if !self.is_unified {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            return name.split(',').any(|n| n == controller);
        }
        let offered = fs::read_to_string(self.path.join("cgroup.controllers")).unwrap_or_default();
        offered.split_whitespace().any(|c| c == controller)
    }
}

fn hierarchies() -> Vec<Hierarchy> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let hierarchy = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        let is_cgroup = path.starts_with("/sys/fs/cgroup") && kind.starts_with("cgroup");
        is_cgroup.then(|| Hierarchy {
            path: PathBuf::from(path),
            is_unified: kind == "cgroup2",
        })
    };
    mounts.lines().filter_map(hierarchy).collect()
}

/// Makes a cgroup in every hierarchy; where there is only one, the controllers that the kubelet needs are handed down to it.
pub(super) fn make_cgroup(name: &str) -> Result<(), Error> {
    for hierarchy in hierarchies() {
        if hierarchy.is_unified && hierarchy.controls("memory") {
            let path = hierarchy.path.join("cgroup.subtree_control");
            let wanted: Vec<String> = CONTROLLERS.iter().map(|c| format!("+{c}")).collect();
            fs::write(&path, wanted.join(" ")).map_err(|e| Error::io("hand controllers down in", &path, e))?;
        }
        let path = hierarchy.path.join(name);
        fs::create_dir_all(&path).map_err(|e| Error::io("create", &path, e))?;
    }
    Ok(())
}

/// Where a cgroup is, in every hierarchy.
pub(super) fn cgroup_paths(name: &str) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|h| h.path.join(name)).collect()
}

/// Whether the cgroup of any node is there.
pub(super) fn has_other_nodes() -> bool {
    let is_node = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(CGROUP);
    let entries = hierarchies().into_iter().filter_map(|h| fs::read_dir(h.path).ok());
    entries.flatten().flatten().any(is_node)
}

/// The settings of the kernel that the kubelet changes, as they are.
pub(crate) fn settings() -> BTreeMap<String, String> {
    let read = |name: &&str| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        Some(((*name).to_owned(), value.trim().to_owned()))
    };
    SETTINGS.iter().filter_map(read).collect()
}

/// Puts settings back.
pub(crate) fn restore(settings: &BTreeMap<String, String>) -> Result<(), Error> {
    for (name, value) in settings {
        let path = Path::new("/proc/sys").join(name);
        fs::write(&path, value).map_err(|e| Error::io("write", &path, e))?;
    }
    Ok(())
}
