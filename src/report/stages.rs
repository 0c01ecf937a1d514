//! The lines below the progress line with `--verbose`: the progress of each stage of a download to
//! files. Pure.

use crate::report::line::{ProgressState, UnderWay, bar, bar_of_unknown};
use crate::text::size::{Count, Decimal, counted};

/// Columns of a stage's name.
const NAME_COLUMNS: usize = 8;

/// A line for each stage, for a terminal of `columns` columns; the last one stays free.
pub(super) fn lines(state: &ProgressState, columns: usize) -> Vec<String> {
    let UnderWay { requests_in_flight, requests_wanted, writes, file_jobs } = state.under_way;
    let known = counted(state.objects_known, "object", "objects");
    // Before the listing is complete, a fraction done would be misleading.
    let of_known = |done: u64, all: u64| match state.listing_complete {
        true => bar(done, all),
        false => bar_of_unknown(),
    };
    let (bytes, bytes_known) = (state.bytes_done.min(state.bytes_known), state.bytes_known);
    let so_far = if state.listing_complete { "" } else { " so far" };
    let listed = format!("{known}, {}{so_far}", Decimal(bytes_known));
    let chosen = counted(requests_wanted.into(), "request", "requests");
    let pace = format!("{requests_in_flight} of {chosen} in flight");
    let received = format!("{} of {}", Decimal(bytes), Decimal(bytes_known));
    let mut written = format!("{} of {known}", Count(state.objects_done));
    if writes + file_jobs > 0 {
        let writes = counted(writes, "write", "writes");
        written += &format!(", {writes} and {} under way", counted(file_jobs, "call", "calls"));
    }
    let stages = [
        ("list", of_known(1, 1), listed),
        ("pace", bar(requests_in_flight.into(), requests_wanted.into()), pace),
        ("receive", of_known(bytes, bytes_known), received),
        ("write", of_known(state.objects_done, state.objects_known), written),
    ];
    let room = columns.saturating_sub(1);
    let fits = |line: &String| line.chars().count() <= room;
    let lines = stages.into_iter().map(|(name, bar, words)| {
        let forms = [format!("{name:NAME_COLUMNS$}[{bar}] {words}"), format!("{name}: {words}")];
        forms.into_iter().find(fits).unwrap_or_default()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: ProgressState = ProgressState {
        bytes_done: 1_000_000_000,
        bytes_known: 4_000_000_000,
        objects_done: 617,
        objects_known: 1_234,
        objects_kept: 0,
        listing_complete: true,
        retries: 0,
        waiting: None,
        under_way: UnderWay {
            requests_in_flight: 12,
            requests_wanted: 16,
            writes: 1,
            file_jobs: 2,
        },
    };

    #[test]
    fn each_stage_has_its_bar() {
        assert_eq!(
            lines(&STATE, 100),
            [
                "list    [========================] 1,234 objects, 4 GB",
                "pace    [==================>     ] 12 of 16 requests in flight",
                "receive [======>                 ] 1 GB of 4 GB",
                "write   [============>           ] 617 of 1,234 objects, 1 write and 2 calls \
                 under way",
            ]
        );
        let listing = ProgressState { listing_complete: false, ..STATE };
        let text = lines(&listing, 100);
        assert_eq!(text[0], "list    [........................] 1,234 objects, 4 GB so far");
        assert_eq!(text[1], lines(&STATE, 100)[1], "the pace is known");
        assert!(text[2..].iter().all(|line| line.contains("[........................]")));
        let idle = ProgressState { under_way: UnderWay::default(), ..STATE };
        assert!(lines(&idle, 100)[3].ends_with("617 of 1,234 objects"));
        let call = UnderWay { file_jobs: 1, ..UnderWay::default() };
        let text = lines(&ProgressState { under_way: call, ..STATE }, 100);
        assert!(text[3].ends_with("objects, 0 writes and 1 call under way"), "{text:?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 0..120 {
            for line in lines(&STATE, columns) {
                assert!(line.chars().count() < columns.max(1), "{columns}: {line}");
            }
        }
        assert_eq!(lines(&STATE, 40)[2], "receive: 1 GB of 4 GB");
    }
}
