//! `inrush doctor`: gathers facts about this machine, the destination and the service, and prints
//! the findings of [`crate::doctor`].

mod disk;
mod machine;
mod service;
mod tree;

use std::sync::Arc;

use super::context::Context;
use super::ending::Done;
use super::session;
use crate::cli::DoctorArgs;
use crate::control::is_endpoint_set;
use crate::doctor::facts::Facts;
use crate::doctor::{Diagnosis, Verdict};
use crate::download::target::Target;
use crate::error::Result;
use crate::report::out::Lines;
use crate::sys::process;
use tree::Tree;

/// Checks, and prints one line for each finding.
pub(super) async fn run(args: DoctorArgs, context: &Arc<Context>) -> Result<Done> {
    process::raise_descriptor_limit();
    let tree = Tree::of_environment();
    let mut facts = Facts {
        machine: machine::machine(&tree, args.ring),
        network: machine::network(&tree, &args.service.interface),
        ..Facts::default()
    };
    // Only once: a pipe can be read only once.
    let progress = context.messages.progress(!args.output.messages.quiet);
    let outputs = (context, &progress);
    let settings = session::settings(&args.service, outputs).await;
    let has_endpoint = args.service.endpoint_url.is_some() || is_endpoint_set(&settings);
    if args.source.is_some() || has_endpoint {
        facts.service = Some(service::look(&args, &settings, outputs).await);
    }
    if let Some(destination) = args.destination {
        let needed_bytes = match (&args.source, &facts.service) {
            (Some(source), Some(service)) => service::bytes_of_one(service, source),
            _ => None,
        };
        // Without a source it may be one object, which becomes a file of this name.
        let is_one = args.source.is_none() || needed_bytes.is_some();
        let refused = Target::at(&destination, is_one, false).await.err();
        let gathered = tokio::task::spawn_blocking(move || disk::look(&tree, &destination));
        let mut disk = gathered.await.expect("looking at a disk does not panic");
        disk.needed_bytes = needed_bytes;
        disk.in_the_way = refused.map(service::trouble).or(disk.in_the_way);
        facts.disk = Some(disk);
    }
    progress.finish();
    let diagnosis = Diagnosis::of(&facts);
    if args.output.json {
        let document = serde_json::to_string(&diagnosis).expect("numbers and text");
        return Ok(Done { code: diagnosis.exit_code, document: Some(document) });
    }
    let mut lines = Lines::stdout();
    let shown = diagnosis
        .checks
        .iter()
        .filter(|finding| !args.output.messages.quiet || finding.verdict != Verdict::Ok);
    for line in shown.flat_map(crate::doctor::Finding::lines) {
        let _ = lines.line(&line)?;
    }
    if !args.output.messages.quiet {
        let _ = lines.line(&diagnosis.summary())?;
    }
    let _ = lines.flush()?;
    Ok(Done { code: diagnosis.exit_code, document: None })
}
