//! Arguments of `mount` and `unmount`.

pub(super) mod fstab;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ValueEnum, ValueHint};

use super::operands::sources;
use super::options::cache::CacheArgs;
use super::options::metrics::MetricsArgs;
use super::{MessageArgs, SelectionArgs, ServiceArgs, TuningArgs, options, usage};
use crate::plan::epoch::Shard;
use crate::s3::uri::{KeyPattern, S3Uri};
use crate::text::shown::shown;

/// Both usage lines of `mount`.
pub(super) const USAGE: &str = "inrush mount [OPTIONS] SOURCE... MOUNTPOINT\n       \
    inrush mount [OPTIONS] --check SOURCE...";

/// The transport of the kernel's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum FuseName {
    /// io_uring where the kernel allows it; else the device
    #[default]
    Auto,
    /// io_uring, or an error
    #[value(name = "io_uring")]
    IoUring,
    /// /dev/fuse
    Device,
}

/// The use of the kernel's page cache for files that are opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PageCacheName {
    /// large files skip it where that is faster, by the reads before
    #[default]
    Auto,
    /// all files use it
    Always,
    /// all files skip it
    Never,
}

/// Arguments of `mount`.
#[derive(Debug, Clone)]
pub struct MountArgs {
    /// Sources to mount; empty only if a file lists them.
    pub sources: Vec<S3Uri>,
    /// The mount point; `None` with `check`, which needs none.
    pub mountpoint: Option<PathBuf>,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Report readiness to the parent process on standard output.
    pub child: bool,
    /// Only list the names in the mount, and the hidden keys.
    pub check: bool,
    /// Only check the arguments.
    pub fake: bool,
    /// List folders when they are used.
    pub lazy: bool,
    /// Interval at which everything is listed again; `None`: never.
    pub refresh: Option<Duration>,
    /// Other users may read, too.
    pub allow_other: bool,
    /// Owner of the files.
    pub uid: Option<u32>,
    /// Group of the files.
    pub gid: Option<u32>,
    /// Permissions of files.
    pub mode: Option<u16>,
    /// Files must not be executed.
    pub noexec: bool,
    /// A file to create when the mount serves.
    pub ready_file: Option<PathBuf>,
    /// The file for messages in the background.
    pub log_file: Option<PathBuf>,
    /// Longest time until it serves, and of each read.
    pub deadline: Option<Duration>,
    /// The file for a line per closed file, and the summary.
    pub report: Option<PathBuf>,
    /// Print the summary as one JSON object at the end.
    pub json: bool,
    /// Add the limiting part to the summary.
    pub explain: bool,
    /// The cache of objects read.
    pub cache: CacheArgs,
    /// The transport of the kernel's requests; `None`: by the environment.
    pub fuse: Option<FuseName>,
    /// The use of the page cache.
    pub page_cache: PageCacheName,
    /// The part of the objects.
    pub shard: Shard,
    /// Output on standard error.
    pub messages: MessageArgs,
    /// Metrics while it runs.
    pub metrics: MetricsArgs,
    /// Filters of objects.
    pub selection: SelectionArgs,
    /// Server and credentials.
    pub service: ServiceArgs,
    /// Resources of the mount.
    pub tuning: TuningArgs,
}

/// Options that need the whole listing, or that may name several sources.
const NEEDS_ALL: [&str; 7] =
    ["check", "include", "exclude", "prefix", "files_from", "manifest", "shard"];

/// `mount` before its operands are distinguished.
#[derive(Debug, clap::Args)]
pub(super) struct MountTyped {
    /// sources, then the folder
    // The help lists them separately: help::COMMANDS.
    #[arg(value_name = "SOURCE... MOUNTPOINT", hide = true, value_hint = ValueHint::AnyPath)]
    operands: Vec<OsString>,
    /// stay in the foreground until the mount is unmounted
    #[arg(long, short = 'f')]
    foreground: bool,
    /// said by the process in the foreground to the one that stays
    #[arg(long, hide = true)]
    background_child: bool,
    /// said for mount(8), which calls it -f
    #[arg(long, hide = true)]
    fake: bool,
    /// list what would be mounted and the keys that would be hidden, and mount nothing; takes no
    /// MOUNTPOINT
    #[arg(long)]
    check: bool,
    /// list each folder when a program first uses it, not everything before it is mounted; takes
    /// one source, which is a folder
    #[arg(long, conflicts_with_all = NEEDS_ALL)]
    lazy: bool,
    /// list everything again after this time, such as 5m, and at SIGHUP, which then does not
    /// unmount: show what is new, replaced and deleted
    #[arg(long, value_name = "TIME", value_parser = super::options::times::parse_refresh,
        conflicts_with = "check")]
    refresh: Option<Duration>,
    /// let other users read, too; unless root mounts, /etc/fuse.conf must allow it
    #[arg(long)]
    allow_other: bool,
    /// owner of files and folders [default: the user that mounts]
    #[arg(long, value_name = "ID", value_parser = |text: &str| parse_id(text, "id -u"))]
    uid: Option<u32>,
    /// group of files and folders [default: that of the user]
    #[arg(long, value_name = "ID", value_parser = |text: &str| parse_id(text, "getent group"))]
    gid: Option<u32>,
    /// permissions of files, octal, such as 440; folders get x where files have r [default: 444]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u16>,
    /// let nobody execute files, whatever --mode is
    #[arg(long, overrides_with = "noexec")]
    noexec: bool,
    /// create this file once the mount serves; it is removed at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = options::parse_report)]
    ready_file: Option<PathBuf>,
    /// append errors and notes to this file in the background [default: they are dropped]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = options::parse_report)]
    log_file: Option<PathBuf>,
    /// fail if the mount does not serve after this time, such as 90s, and fail a read (EIO) that
    /// takes as long
    #[arg(long, value_name = "TIME", value_parser = super::options::times::parse_deadline)]
    deadline: Option<Duration>,
    /// write one JSON line to this file for each file that was read, when it is closed, and the
    /// summary at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = options::parse_report, conflicts_with = "check")]
    report: Option<PathBuf>,
    /// print one JSON object with the summary to standard output at the end; needs --foreground
    #[arg(long, conflicts_with = "check")]
    json: bool,
    /// print which part of the machine, the network or the server was the limit
    #[arg(long, conflicts_with = "check")]
    explain: bool,
    #[command(flatten)]
    cache: CacheArgs,
    /// how the kernel's requests come [default: INRUSH_FUSE, or auto]
    #[arg(long, value_name = "TRANSPORT")]
    fuse: Option<FuseName>,
    /// whether files that programs read use the kernel's page cache
    #[arg(long, value_name = "USE", default_value = "auto")]
    page_cache: PageCacheName,
    /// take only part I of N of the objects; I starts at 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    #[command(flatten)]
    messages: MessageArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    tuning: TuningArgs,
}

impl MountTyped {
    /// Refuses options that exclude each other.
    fn check(&self) -> Result<(), clap::Error> {
        if self.tuning.part_size.is_some() {
            return Err(usage(
                "--part-size is not an option of mount: programs decide what is read",
            ));
        }
        let is_dropped = !self.foreground && !self.background_child;
        if self.json && is_dropped {
            return Err(usage(
                "--json prints when the mount ends: use --foreground, or --report FILE",
            ));
        }
        if self.check && self.cache.cache.is_some() {
            return Err(usage("--cache cannot be used with --check, which reads nothing"));
        }
        if self.refresh.is_some() && self.lazy {
            return Err(usage(
                "--refresh cannot be used with --lazy: it lists everything, and --lazy only what \
                 is used",
            ));
        }
        if self.refresh.is_some() && self.shard != Shard::WHOLE {
            return Err(usage(
                "--refresh cannot be used with --shard: one new object would move all later ones \
                 to other parts",
            ));
        }
        if self.explain && is_dropped && self.log_file.is_none() {
            return Err(usage(
                "--explain prints when the mount ends: use --foreground, or --log-file FILE",
            ));
        }
        Ok(())
    }

    pub(super) fn settle(mut self) -> Result<MountArgs, clap::Error> {
        let is_remote = |operand: &OsString| operand.as_encoded_bytes().starts_with(b"s3://");
        let last_is_local = self.operands.last().is_some_and(|operand| !is_remote(operand));
        let mountpoint = match last_is_local {
            true => self.operands.pop(),
            false if self.check => None,
            false if self.operands.is_empty() && !self.selection.has_more() => {
                return Err(usage(
                    "source and mount point are missing: inrush mount s3://BUCKET/FOLDER/ DIR",
                ));
            }
            false => return Err(usage("the mount point is missing: add a folder at the end")),
        };
        if let Some(point) = mountpoint.as_ref().filter(|point| {
            point.is_empty() || point.as_encoded_bytes().windows(3).any(|three| three == b"://")
        }) {
            let shown = shown(&point.display().to_string());
            return Err(usage(&format!(
                "'{shown}' is not a folder: the last argument is the folder to mount on"
            )));
        }
        self.check()?;
        let mut sources = sources("mount", self.operands, false, &self.selection)?;
        self.service.with_version(sources.iter_mut())?;
        check_lazy(self.lazy, &sources)?;
        Ok(MountArgs {
            sources,
            mountpoint: mountpoint.map(PathBuf::from),
            foreground: self.foreground,
            child: self.background_child,
            check: self.check,
            fake: self.fake,
            lazy: self.lazy,
            refresh: self.refresh,
            allow_other: self.allow_other,
            uid: self.uid,
            gid: self.gid,
            mode: self.mode,
            noexec: self.noexec,
            ready_file: self.ready_file,
            log_file: self.log_file,
            deadline: self.deadline,
            report: self.report,
            json: self.json,
            explain: self.explain,
            cache: self.cache,
            fuse: self.fuse,
            page_cache: self.page_cache,
            shard: self.shard,
            messages: self.messages,
            metrics: self.metrics,
            selection: self.selection,
            service: self.service,
            tuning: self.tuning,
        })
    }
}

/// Refuses sources that cannot be folders. Others are checked when they are listed.
fn check_lazy(is_lazy: bool, sources: &[S3Uri]) -> Result<(), clap::Error> {
    match sources {
        _ if !is_lazy => Ok(()),
        [one] if matches!(one.key, KeyPattern::Glob(_)) => Err(usage(
            "--lazy cannot be used with a glob, which needs the whole listing: give a folder, or \
             --raw if this is its name",
        )),
        [_] => Ok(()),
        several => Err(usage(&format!(
            "--lazy takes one source, and {} are given: give the folder that they are in",
            several.len()
        ))),
    }
}

fn parse_mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "expected octal permissions from 0 to 777".to_owned())
}

/// Parses the number of a user or a group; `program` prints the number for a name.
fn parse_id(text: &str, program: &str) -> Result<u32, String> {
    text.parse().map_err(|_| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("expected a number from 0 to {}", u32::MAX),
        false => format!("expected a number, not a name: '{program} NAME' prints it"),
    })
}

/// Arguments of `unmount`.
#[derive(Debug, Clone, clap::Args)]
pub struct UnmountArgs {
    /// the folder that a mount of inrush is on
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
}
