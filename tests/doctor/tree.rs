//! A folder that stands for /proc and /sys of a healthy machine with 16 cores, and of one with
//! faults.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// The files, planted.
pub(crate) struct Tree {
    folder: TempDir,
}

impl Tree {
    /// Nothing is wrong.
    pub(crate) fn healthy() -> Self {
        let tree = Self { folder: tempfile::tempdir().expect("a folder") };
        let status = "Name:\tinrush\nCapEff:\t0000000000000000\nSeccomp:\t0\n\
                      Cpus_allowed_list:\t0-15\n";
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.8.0-1021-aws"),
            ("proc/sys/kernel/io_uring_disabled", "0"),
            ("proc/self/status", status),
            ("proc/self/cgroup", "0::/job\n"),
            ("proc/meminfo", "MemTotal:  67108864 kB\nMemAvailable:  60000000 kB\n"),
            ("proc/sys/fs/pipe-max-size", "1048576"),
            ("proc/sys/fs/pipe-user-pages-soft", "16384"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
            ("sys/fs/cgroup/job/memory.max", "max"),
            ("sys/fs/cgroup/job/cpu.max", "max 100000"),
            ("sys/devices/system/cpu/online", "0-15"),
            ("sys/devices/system/node/node0/cpulist", "0-15"),
            ("proc/net/route", "Iface Destination Gateway\nens5 00000000 010200C0\n"),
            ("proc/sys/net/core/rmem_max", "212992"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
            ("proc/sys/net/ipv4/tcp_mem", "786432\t1048576\t1572864"),
            ("proc/net/sockstat", "sockets: used 9\nTCP: inuse 4 orphan 0 tw 0 alloc 4 mem 314"),
            ("sys/class/net/ens5/operstate", "up"),
            ("sys/class/net/ens5/speed", "100000"),
            ("sys/class/net/ens5/duplex", "full"),
            ("sys/class/net/ens5/mtu", "9001"),
        ] {
            tree.plant(path, text);
        }
        tree.limits("unlimited", 1 << 20);
        for queue in 0..4 {
            tree.plant(&format!("sys/class/net/ens5/queues/rx-{queue}/rps_cpus"), "0");
        }
        tree.interrupts(4);
        tree
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a file of this text.
    pub(crate) fn plant(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        fs::write(path, format!("{text}\n")).expect("room");
    }

    /// The limits of the process.
    pub(crate) fn limits(&self, locked: &str, files: u64) {
        let text = format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max open files            1024                 {files}                 files\n\
             Max address space         unlimited            unlimited            bytes\n\
             Max file size             unlimited            unlimited            bytes\n\
             Max locked memory         {locked}             {locked}             bytes"
        );
        self.plant("proc/self/limits", &text);
    }

    /// Plants `count` interrupts of the interface, each on a core of its own.
    pub(crate) fn interrupts(&self, count: u32) {
        let mut text = String::from("           CPU0       CPU1\n");
        for number in 0..count {
            let _ = writeln!(text, " {}:  9  0  PCI-MSIX  edge  ens5-Tx-Rx-{number}", 40 + number);
            let file = format!("proc/irq/{}/effective_affinity_list", 40 + number);
            self.plant(&file, &number.to_string());
        }
        self.plant("proc/interrupts", &text);
    }
}
