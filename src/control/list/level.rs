//! Lists one level of a folder: its objects, and the names of its subfolders.

use crate::control::Control;
use crate::error::Result;
use crate::plan::repeats::LevelRepeats;
use crate::s3::cycle::CycleGuard;
use crate::s3::list::{ListQuery, Page};
use crate::s3::uri::shown;

/// A listing of one level, page by page.
#[derive(Debug)]
pub struct LevelPages<'a> {
    control: &'a Control,
    bucket: &'a str,
    query: ListQuery,
    cycle: CycleGuard,
    repeats: LevelRepeats,
    /// The first page, if already received.
    first: Option<Page>,
    is_over: bool,
}

impl<'a> LevelPages<'a> {
    /// Lists the folder with this prefix: empty, or with a slash at its end.
    #[must_use]
    pub fn new(control: &'a Control, bucket: &'a str, prefix: &str) -> Self {
        let query = ListQuery { by_folder: true, ..ListQuery::new(prefix) };
        let (cycle, repeats) = (CycleGuard::default(), LevelRepeats::default());
        Self { control, bucket, query, cycle, repeats, first: None, is_over: false }
    }

    /// Uses this first page.
    #[must_use]
    pub fn from_first(self, page: Page) -> Self {
        Self { first: Some(page), ..self }
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// Those of [`Control::list_page`], and if the pages do not advance.
    pub async fn next(&mut self) -> Result<Option<Page>> {
        if self.is_over {
            return Ok(None);
        }
        let mut page = match self.first.take() {
            Some(page) => page,
            None => self.control.list_page(self.bucket, &self.query).await?,
        };
        let objects = page.objects.iter().map(|object| object.key.as_str());
        let least = objects.chain(page.folders.iter().map(String::as_str)).min();
        match &page.next_token {
            Some(token) => self.cycle.follow(least, token).map_err(|error| {
                error.within(format!("list s3://{}/{}", self.bucket, shown(&self.query.prefix)))
            })?,
            None => self.is_over = true,
        }
        self.query.token.clone_from(&page.next_token);
        self.repeats.remove_from(&mut page);
        Ok(Some(page))
    }
}
