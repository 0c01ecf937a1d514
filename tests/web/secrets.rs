//! Queries are printed nowhere, and written nowhere.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::publisher::{Publisher, Reply, file};
use crate::{ACCESS, Place, SECRET, get, presigned, text};

/// Fails if a file below this folder, its name or an attribute of it has the secret.
fn assert_kept(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.to_string_lossy().into_owned();
        assert!(!name.contains(SECRET) && !name.contains("X-Amz"), "{name}");
        if path.is_dir() {
            assert_kept(&path);
            continue;
        }
        let bytes = fs::read(&path).expect("a file");
        let has = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|at| at == SECRET.as_bytes());
        assert!(!has(&bytes), "{name}");
        let mut names = [0; 4096];
        let length = rustix::fs::listxattr(&path, &mut names[..]).unwrap_or(0);
        for attribute in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let attribute = std::str::from_utf8(attribute).expect("text");
            let mut value = [0; 4096];
            let length = rustix::fs::getxattr(&path, attribute, &mut value[..]).expect("a value");
            assert!(!has(&value[..length]), "{attribute} of {name}");
        }
    }
}

#[test]
fn queries_are_in_no_output_report_or_mark() {
    const LENGTH: usize = (3 << 20) + 5;
    for expires in [false, true] {
        let place = Place::new();
        let served = AtomicUsize::new(0);
        let store = Publisher::start(move |head| {
            let is_over = expires && served.fetch_add(1, Ordering::SeqCst) >= 3;
            let why = format!(
                "<Error><Code>AccessDenied</Code><Message>no {}</Message></Error>",
                head.target()
            );
            if is_over { Reply::new(403, why) } else { file(head, &text(LENGTH), "\"e\"") }
        });
        let target = store.url(&format!("/blob?{}", presigned("20240101T000000Z")));
        let front = Publisher::start(move |_| Reply::leading_to(302, &target));
        let url = front.url(&format!("/f?Policy={SECRET}&token={SECRET}&Signature={SECRET}"));
        let mut program = get(&[&url, "-vv", "--json", "--stats", "--explain"], &place.path("to/"));
        for (option, name) in [("--report", "report"), ("--metrics-file", "metrics")] {
            program = program.with([option.as_ref(), place.path(name).as_os_str()]);
        }
        let run = program.set("RUST_LOG", "trace").run();
        let run = run.expect(if expires { ACCESS } else { 0 });
        for hidden in [SECRET, "X-Amz", "Policy=", "Signature="] {
            let printed = format!("{}{}", run.stdout, run.stderr);
            run.check(!printed.contains(hidden), hidden);
        }
        run.check(run.stderr.contains("/f?..."), "the URL is named");
        let report = fs::read_to_string(place.path("report")).expect("a report");
        assert!(report.contains(&front.url("")) && report.contains("\"key\":\"f\""), "{report}");
        assert_kept(&place.path(""));
    }
}
