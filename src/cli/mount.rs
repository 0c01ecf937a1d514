//! `mount` and `unmount`: what was typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ValueEnum, ValueHint};

use super::cache::CacheArgs;
use super::metrics::MetricsArgs;
use super::{MessageArgs, SelectionArgs, ServiceArgs, TuningArgs, options, sources, usage};
use crate::plan::epoch::Shard;
use crate::s3::uri::{KeyPattern, S3Uri};
use crate::text::shown::shown;

/// Both forms of `mount`.
pub(super) const USAGE: &str = "inrush mount [OPTIONS] SOURCE... MOUNTPOINT\n       \
    inrush mount [OPTIONS] --check SOURCE...";

/// How the kernel's requests come.
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

/// What was typed after `mount`.
#[derive(Debug, Clone)]
pub struct MountArgs {
    /// What is to be seen; empty only where a file has more sources.
    pub sources: Vec<S3Uri>,
    /// Where; `None` with `check`, which needs none.
    pub mountpoint: Option<PathBuf>,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Tell whoever started this process, on standard output, that it serves.
    pub child: bool,
    /// Only list what would be seen, and what not.
    pub check: bool,
    /// Mount nothing: what was typed is right.
    pub fake: bool,
    /// Folders are listed when they are used.
    pub lazy: bool,
    /// Other users may read, too.
    pub allow_other: bool,
    /// Whose the files are.
    pub uid: Option<u32>,
    /// Of which group.
    pub gid: Option<u32>,
    /// Permissions of files.
    pub mode: Option<u16>,
    /// Nothing of it may be executed.
    pub noexec: bool,
    /// A file that is made when it serves.
    pub ready_file: Option<PathBuf>,
    /// Where messages go in the background.
    pub log_file: Option<PathBuf>,
    /// Longest time until it serves, and of each read.
    pub deadline: Option<Duration>,
    /// A file that gets a line for each file that was open, and the summary.
    pub report: Option<PathBuf>,
    /// One JSON object with the summary at the end.
    pub json: bool,
    /// The summary tells what the limit was.
    pub explain: bool,
    /// A folder that keeps what was read.
    pub cache: CacheArgs,
    /// How the kernel's requests come; `None`: as the environment says.
    pub fuse: Option<FuseName>,
    /// Which part of the objects.
    pub shard: Shard,
    /// What is printed on standard error.
    pub messages: MessageArgs,
    /// The numbers while it runs.
    pub metrics: MetricsArgs,
    /// Which of the objects.
    pub selection: SelectionArgs,
    /// Which server, and as whom.
    pub service: ServiceArgs,
    /// How much of the machine.
    pub tuning: TuningArgs,
}

/// Options that need the whole listing, or that stand for several sources.
const NEEDS_ALL: [&str; 7] =
    ["check", "include", "exclude", "prefix", "files_from", "manifest", "shard"];

/// `mount` before its operands are told apart.
#[derive(Debug, clap::Args)]
pub(super) struct MountTyped {
    /// sources, then the folder
    // The help has them apart: help::COMMANDS.
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
    #[arg(long, value_name = "TIME", value_parser = super::times::parse_deadline)]
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
    /// Refuses options that mean nothing together.
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
            shard: self.shard,
            messages: self.messages,
            metrics: self.metrics,
            selection: self.selection,
            service: self.service,
            tuning: self.tuning,
        })
    }
}

/// Refuses what is surely no folder. Whether it is one shows when it is looked at.
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

/// A number of a user or a group; `tells` is what prints that of a name.
fn parse_id(text: &str, tells: &str) -> Result<u32, String> {
    text.parse().map_err(|_| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("expected a number from 0 to {}", u32::MAX),
        false => format!("expected a number, not a name: '{tells} NAME' prints it"),
    })
}

/// What was typed after `unmount`.
#[derive(Debug, Clone, clap::Args)]
pub struct UnmountArgs {
    /// the folder that a mount of inrush is on
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
}
