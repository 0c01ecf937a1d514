//! `inrush verify`: compares existing files with the stored checksums of the source's objects. It
//! downloads nothing and writes only its report, and with `--adopt` marks.

mod check;
mod compare;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use self::check::{Check, share};
use super::context::Context;
use super::ending::Done;
use super::own_files::written;
use super::reporting::open;
use super::session::{self, Interrupts};
use crate::cli::{Destination, VerifyArgs};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::walk::Walk;
use crate::download::cancel::Cancel as _;
use crate::download::own_files::TakenPaths;
use crate::download::sources::{self, Narrowed};
use crate::download::target::Target;
use crate::error::{Error, Result};
use crate::files::system_host::{Adopter, Reader};
use crate::plan::filter::Filter;
use crate::plan::folding::Folding;
use crate::report::progress::Progress;
use crate::sys::process;

/// The state of a run that is interrupted early.
const NOTHING_YET: &str = "before any file was compared";

/// Verifies the files.
pub(super) async fn run(
    mut args: VerifyArgs,
    begun: Instant,
    context: &Arc<Context>,
) -> Result<Done> {
    let progress = context.messages.progress(!args.output.messages.quiet);
    process::raise_descriptor_limit();
    let filter = Filter::new(&args.selection.rules)?;
    let mut interrupts = Interrupts::listen(context)?;
    context.leaves(|| {
        "a read of a file, or a write to the reader of the output, has not returned; no data was \
         changed"
            .to_owned()
    });
    let added = sources::add(&mut args.sources, &args.selection, &context.board);
    interrupts.unless_reported(NOTHING_YET, added).await?;
    let found = find(&mut args, filter, (context, &progress), begun);
    let (found, walk) = interrupts.unless_reported(NOTHING_YET, found).await?;
    // Not earlier: a run that fails early leaves the report of an earlier one.
    let report = open(args.report.as_deref(), &mut interrupts).await?;
    let control = found.control.clone();
    let mut check = Check::new(found, args.strict, progress, report);
    let driven = tokio::select! {
        biased;
        () = interrupts.next() => Err(check.interrupted()),
        driven = check.work(walk) => driven,
        () = session::refresh(control) => unreachable!("refresh has no end"),
    };
    check.end(driven, begun.elapsed(), args.output.json, &mut interrupts).await
}

/// What is compared: the control plane of the sources, and the folder.
struct Intake {
    control: Rc<Control>,
    target: Target,
    folder: Reader,
    adopter: Option<Arc<Adopter>>,
    /// Paths of no files that can be compared.
    taken: TakenPaths,
}

/// Resolves the sources, and opens the folder; returns the listing, too.
async fn find(
    args: &mut VerifyArgs,
    filter: Filter,
    (context, progress): (&Arc<Context>, &Progress),
    begun: Instant,
) -> Result<(Intake, Walk)> {
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, (context, progress)).await?;
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let Narrowed { filter, shard } = narrowed;
    let sources = control.resolve_all(&args.sources).await?;
    super::log::sources(&sources);
    let many = args.selection.has_more();
    let target = Target::choose(&Destination::Local(args.folder.clone()), &sources, many).await?;
    let folder = target.folder().expect("a local destination has a folder").to_owned();
    let adopts = args.adopt;
    let (folder, adopter) = blocking(move || {
        let adopter = adopts.then(|| Adopter::open(&folder, begun)).transpose()?;
        let reader = Reader::open(&folder)?.with_folders_kept(share());
        Ok::<_, Error>((reader, adopter.map(Arc::new)))
    })
    .await?;
    let walk = Walk::new(control.clone(), sources, filter)?.sharded(shard)?.without_repeated();
    let (folders, written) = (target.owned_folders(), written(args.report.as_ref(), None));
    let taken = blocking(move || TakenPaths::new(Folding::default(), &folders, &written)).await;
    Ok((Intake { control, target, folder, adopter, taken }, walk))
}
