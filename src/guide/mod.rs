//! The guide: what users may want to know beyond `README.md`, one page for each topic. Pure.
//!
//! The pages are Markdown files in this folder. `inrush guide TOPIC` prints them, and here each is
//! the documentation of a module.

/// One page of the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    /// Its name: what is typed after `inrush guide`, and the name of its file without `.md`.
    pub name: &'static str,
    /// What it is about, in one line.
    pub summary: &'static str,
    /// The page, in Markdown.
    pub text: &'static str,
}

macro_rules! topics {
    ($($name:ident $file:literal $summary:literal)*) => {
        /// All pages, in the order in which they are best read.
        pub const TOPICS: &[Topic] = &[$(
            Topic { name: stringify!($name), summary: $summary, text: include_str!($file) }
        ),*];
        $(
            // Pages link to each other by names, which they define at their end as files, for
            // readers of the repository. The first definition counts: here names are modules.
            #[doc = include_str!("rustdoc-links.txt")]
            #[doc = include_str!($file)]
            pub mod $name {}
        )*
    };
}

topics! {
    sources "sources.md" "which objects are downloaded, and where they go"
    endpoints "endpoints.md" "credentials, regions, S3-compatible servers, kinds of buckets"
    tls "tls.md" "HTTPS: certificates, versions, ciphers"
    proxies "proxies.md" "HTTP proxies"
    resuming "resuming.md" "running again: which files are kept, how unfinished ones resume"
    sync "sync.md" "keeping a folder up to date, and deleting what the source does not have"
    durability "durability.md" "when data is synced to disk, and free space"
    verification "verification.md" "checksums: during a download, and of local files"
    retries "retries.md" "retries, outages, deadlines, Ctrl-C"
    pipes "pipes.md" "pipe and cat: epochs, shards, markers, failures, memory"
    mount "mount.md" "mount: objects as files that are read on demand"
    training "training.md"
        "train: the input of a SageMaker job (training, Processing, Transform), and its command"
    doctor "doctor.md" "doctor: what it checks of machine, disk and service"
    tuning "tuning.md" "connections, part size, memory, bandwidth; adaptive concurrency"
    bench "bench.md" "--explain and bench: what is the limit, measuring a machine"
    comparison "comparison.md" "inrush beside s5cmd, the AWS CLI, curl and others; how to repeat it"
    containers "containers.md" "packages, containers, seccomp, systemd; what restrictions change"
    reports "reports.md" "exit codes, the summary, JSON fields, the report of each object"
    metrics "metrics.md" "metrics for Prometheus while a command runs; log lines as JSON"
    library "library.md" "using the engine from a Rust program"
    python "python.md" "the Python package: PyTorch, fsspec, WebDataset, TensorFlow, safetensors"
    design "design.md" "how inrush works"
    testing "testing.md" "what inrush promises, and which tests check it"
}

/// Other names of pages: what is typed, and the page that is meant.
const ALIASES: &[(&str, &str)] = &[("train", "training"), ("sagemaker", "training")];

/// The other names of a page, which no list has.
pub fn aliases(name: &str) -> impl Iterator<Item = &'static str> {
    ALIASES.iter().filter(move |(_, page)| *page == name).map(|(alias, _)| *alias)
}

/// The page of this name.
#[must_use]
pub fn topic(name: &str) -> Option<&'static Topic> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, page)| page);
    TOPICS.iter().find(|topic| topic.name == name)
}

/// The list of all pages, one line each.
#[must_use]
pub fn list() -> String {
    let width = TOPICS.iter().map(|topic| topic.name.len()).max().unwrap_or(0);
    let mut text = String::from("Topics:\n");
    for Topic { name, summary, .. } in TOPICS {
        text += &format!("  {name:width$}  {summary}\n");
    }
    text + "\nPrint one with: inrush guide TOPIC\n"
}
