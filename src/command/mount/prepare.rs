//! The names of a mount: all of them from a listing, or with `--lazy` a folder that exists.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::spawn_local;

use crate::cli::MountArgs;
use crate::command::context::Context;
use crate::command::{log, session};
use crate::control::Control;
use crate::control::list::ahead::ResolveAhead;
use crate::control::list::sources::{Depth, SourceKind};
use crate::control::list::walk::Walk;
use crate::download::cancel::until;
use crate::download::sources::{self, Narrowed};
use crate::error::{Error, ErrorKind, Result};
use crate::mount::serving::names::{LazyNames, Names};
use crate::mount::serving::refresher::Relisting;
use crate::plan::filter::Filter;
use crate::report::progress::Progress;
use crate::s3::uri::S3Uri;

/// The sources to mount.
pub(super) struct Prepared {
    pub(super) control: Rc<Control>,
    pub(super) names: Names,
    /// What is listed again with `--refresh`.
    pub(super) relisting: Option<Relisting>,
}

/// Runs [`prepare`] until the deadline.
pub(super) async fn prepare_until(
    deadline: Option<Instant>,
    args: &mut MountArgs,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Prepared> {
    tokio::select! {
        prepared = prepare(args, (context, progress)) => prepared,
        () = until(deadline) => {
            let blame = context.blame();
            let message = format!("the deadline has passed before it was mounted{blame}");
            Err(Error::new(ErrorKind::Deadline, message).advise("give a longer --deadline"))
        }
    }
}

/// Lists all sources, or only checks if there is one.
async fn prepare(
    args: &mut MountArgs,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Prepared> {
    let credentials = session::credentials(&args.service);
    let control = session::control(&args.service, credentials, (context, progress)).await?;
    if args.lazy {
        let names = Names::Lazy(lazy(&control, &args.sources).await?);
        return Ok(Prepared { control, names, relisting: None });
    }
    let filter = Filter::new(&args.selection.rules)?;
    let narrowed = Narrowed { filter, shard: args.shard };
    let (uris, board) = (&mut args.sources, &context.board);
    let narrowed = sources::add_manifest(&control, uris, &args.selection, narrowed, board).await?;
    let Narrowed { filter, shard } = narrowed;
    let found = control.resolve_all(&args.sources).await?;
    log::sources(&found);
    let relisting = args.refresh.map(|_| Relisting {
        control: Rc::clone(&control),
        sources: args.sources.clone(),
        filter: filter.clone(),
    });
    let walk = Walk::new(control.clone(), found, filter)?.sharded(shard)?.without_repeated();
    let refresh = spawn_local(session::refresh(Rc::clone(&control)));
    let names = Names::listed(walk.into()).await;
    refresh.abort();
    Ok(Prepared { control, names: names?, relisting })
}

/// Names without a listing. One request shows that the folder exists, and may be listed.
async fn lazy(control: &Rc<Control>, sources: &[S3Uri]) -> Result<LazyNames> {
    let mut found = ResolveAhead::new(Rc::clone(control), sources.to_vec(), Depth::First);
    let source = found.next().await?.ok_or_else(|| Error::bug("a mount without a source"))?;
    log::sources(std::slice::from_ref(&source));
    let SourceKind::Folder { prefix } = source.found else {
        let message = format!("{}: this is an object, but --lazy mounts a folder", source.uri);
        return Err(Error::new(ErrorKind::Usage, message).advise("omit --lazy"));
    };
    Ok(LazyNames::new(source.uri.bucket, prefix))
}
