//! Texts of /proc and /sys as numbers.

pub use crate::sys::topology::list;

/// A number alone.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The value behind `name:` in files such as /proc/self/status.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

/// The value behind `name:`, given in kB, in bytes.
#[must_use]
pub fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = field(text, name)?.strip_suffix("kB")?;
    Some(number(value)?.saturating_mul(1024))
}

/// The hard limit of this name in /proc/self/limits; `u64::MAX` without one.
#[must_use]
pub fn hard_limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        value => value.parse().ok(),
    }
}

/// The soft limit of this name.
#[must_use]
pub fn soft_limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        value => value.parse().ok(),
    }
}

/// The choice in force of `always [madvise] never`; the word itself where there is no other.
#[must_use]
pub fn chosen(text: &str) -> Option<String> {
    let word = match text.split_once('[') {
        Some((_, rest)) => rest.split(']').next()?,
        None => text.trim(),
    };
    (!word.is_empty()).then(|| word.to_owned())
}

/// `200000 100000` of cpu.max as cores; `None` without a quota.
#[must_use]
pub fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// The interface of the default route in /proc/net/route.
#[must_use]
pub fn default_interface(text: &str) -> Option<String> {
    text.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        (words.next()? == "00000000").then(|| name.to_owned())
    })
}

/// The folders of this process's control groups: of version 2, and of a controller of version 1,
/// from its own up to the root. Below `sys/fs/cgroup`.
#[must_use]
pub fn cgroups(text: &str, controller: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next(), fields.next(), fields.next());
        let above = match (number, names) {
            (Some("0"), Some("")) => String::new(),
            (_, Some(names)) if names.split(',').any(|name| name == controller) => {
                format!("/{controller}")
            }
            _ => continue,
        };
        let mut path = path.unwrap_or_default().trim_end_matches('/');
        loop {
            folders.push(format!("{above}{path}"));
            match path.rsplit_once('/') {
                Some((up, _)) => path = up,
                None => break,
            }
        }
    }
    folders
}
