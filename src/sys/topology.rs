//! The machine's topology from sysfs(5): NUMA nodes and their cores, network interfaces and their
//! nodes.
//!
//! Each function takes the folder that stands for `/`: tests have trees of their own.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A network interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: Arc<str>,
    /// NUMA node of its device, if known.
    pub node: Option<u32>,
}

/// The interface of a connection, as a suffix of error messages; empty if the user named none.
#[derive(Debug, Clone, Copy)]
pub struct Over<'a>(pub Option<&'a str>);

impl fmt::Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " over the interface {name}"),
            None => Ok(()),
        }
    }
}

/// Number of a NUMA node, and its online cores.
pub type Node = (u32, Vec<u32>);

/// Longest range of cores that is read: twice Linux's maximum.
const CORES_MAX: u32 = 16_384;

/// Parses a list of cores such as `0-3,8`. `None` for anything else.
#[must_use]
pub fn list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last - first > CORES_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Ascending numbers in the format of [`list`].
#[must_use]
pub fn in_words(numbers: &[u32]) -> String {
    let mut words: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        words.push(match run {
            [first, .., last] => format!("{first}-{last}"),
            one => one.iter().map(u32::to_string).collect(),
        });
    }
    words.join(",")
}

/// The possible processors, and those online.
#[must_use]
pub fn processors(root: &Path) -> Option<(Vec<u32>, Vec<u32>)> {
    let of = |name: &str| {
        let file = root.join("sys/devices/system/cpu").join(name);
        list(&std::fs::read_to_string(file).ok()?).filter(|cores| !cores.is_empty())
    };
    Some((of("possible")?, of("online")?))
}

/// The NUMA nodes that have cores, by number.
#[must_use]
pub fn nodes(root: &Path) -> Vec<Node> {
    let folder = root.join("sys/devices/system/node");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let node = |name: String| {
        let number: u32 = name.strip_prefix("node")?.parse().ok()?;
        let cores = std::fs::read_to_string(folder.join(&name).join("cpulist")).ok()?;
        list(&cores).filter(|cores| !cores.is_empty()).map(|cores| (number, cores))
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut nodes: Vec<Node> = names.filter_map(node).collect();
    nodes.sort_unstable();
    nodes
}

/// NUMA node of an interface's device; `None` without a device or a node (-1).
#[must_use]
pub fn node_of(root: &Path, interface: &str) -> Option<u32> {
    let file = root.join("sys/class/net").join(interface).join("device/numa_node");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Names of all interfaces of this process's network namespace, in order.
#[must_use]
pub fn interfaces(root: &Path) -> Vec<String> {
    // Not /sys/class/net: it shows the namespace in which /sys was mounted.
    let text = std::fs::read_to_string(root.join("proc/self/net/dev")).unwrap_or_default();
    // The two heading lines have no colon.
    let name = |line: &str| line.rsplit_once(':').map(|(name, _)| name.trim().to_owned());
    let mut names: Vec<String> = text.lines().filter_map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    #[test]
    fn lists_are_read_and_written() {
        for (text, cores) in [
            ("0-3,8\n", &[0, 1, 2, 3, 8][..]),
            ("5", &[5]),
            ("", &[]),
            ("0-1,4-5,7", &[0, 1, 4, 5, 7]),
        ] {
            assert_eq!(list(text).as_deref(), Some(cores), "{text}");
            assert_eq!(in_words(cores), text.trim(), "{cores:?}");
        }
        for odd in ["x", "3-1", "0-99999999", "1-"] {
            assert_eq!(list(odd), None, "{odd}");
        }
    }

    #[test]
    fn nodes_and_interfaces_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert!(nodes(root).is_empty() && interfaces(root).is_empty(), "nothing is known");
        assert_eq!(processors(root), None);
        plant(root, "sys/devices/system/cpu/possible", "0-3\n");
        plant(root, "sys/devices/system/cpu/online", "0,2\n");
        assert_eq!(processors(root), Some((vec![0, 1, 2, 3], vec![0, 2])));
        plant(root, "sys/devices/system/node/node1/cpulist", "4-7\n");
        plant(root, "sys/devices/system/node/node0/cpulist", "0-3\n");
        // A node with memory only, such as CXL.
        plant(root, "sys/devices/system/node/node2/cpulist", "\n");
        plant(root, "sys/devices/system/node/possible", "0-2\n");
        assert_eq!(nodes(root), [(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])]);
        plant(root, "sys/class/net/eth1/device/numa_node", "1\n");
        plant(root, "sys/class/net/veth0/device/numa_node", "-1\n");
        assert_eq!(["eth1", "veth0", "lo"].map(|name| node_of(root, name)), [Some(1), None, None]);
        let table = "Inter-|   Receive\n face |bytes    packets\n    lo: 1 2\n  eth1:77 1\n";
        plant(root, "proc/self/net/dev", table);
        assert_eq!(interfaces(root), ["eth1", "lo"]);
    }

    #[test]
    fn this_machine_has_a_loopback_interface() {
        assert!(interfaces(Path::new("/")).iter().any(|name| name == "lo"));
        assert_eq!(node_of(Path::new("/"), "lo"), None);
    }
}
