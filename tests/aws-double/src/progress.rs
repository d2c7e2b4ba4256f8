//! Shows what the bed is doing: a spinner per running step on a terminal, lines for its begin and
//! end elsewhere, on stderr.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;

/// Where steps are shown. Cheap to clone; clones share the screen.
#[derive(Clone, Debug)]
pub struct Progress {
    screen: Screen,
}

#[derive(Clone, Debug)]
enum Screen {
    Hidden,
    Lines,
    Bars(Arc<MultiProgress>),
}

impl Progress {
    /// Shows nothing; for tests.
    pub const fn hidden() -> Self {
        Self { screen: Screen::Hidden }
    }

    /// Shows steps on stderr: spinners if it is a terminal, else lines.
    pub fn stderr() -> Self {
        if console::user_attended_stderr() {
            Self { screen: Screen::Bars(Arc::new(MultiProgress::new())) }
        } else {
            Self { screen: Screen::Lines }
        }
    }

    /// Begins a step; `what` says what is being done (`"building kube-apiserver"`). The step is
    /// shown as failed if it is dropped before [`Step::done`].
    ///
    /// # Panics
    /// Never: the template is valid.
    pub fn step(&self, what: impl Into<String>) -> Step {
        let what = what.into();
        let bar = match &self.screen {
            Screen::Bars(bars) => {
                let bar = bars.add(ProgressBar::new_spinner());
                let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
                    .expect("a valid template");
                bar.set_style(style);
                bar.set_message(what.clone());
                bar.enable_steady_tick(Duration::from_millis(120));
                Some(bar)
            }
            Screen::Lines => {
                anstream::eprintln!("… {what}");
                None
            }
            Screen::Hidden => None,
        };
        Step { what, started: Instant::now(), bar, progress: self.clone(), finished: false }
    }

    /// Shows one line.
    pub fn say(&self, line: &str) {
        match &self.screen {
            Screen::Hidden => {}
            Screen::Lines => anstream::eprintln!("{line}"),
            // The screen may be gone (closed terminal); the bed's work goes on.
            Screen::Bars(bars) => drop(bars.println(line)),
        }
    }
}

impl Progress {
    /// Prints a line on stdout, without disturbing the steps that are shown.
    pub fn print(&self, line: &str) {
        match &self.screen {
            Screen::Hidden | Screen::Lines => anstream::println!("{line}"),
            Screen::Bars(bars) => bars.suspend(|| anstream::println!("{line}")),
        }
    }
}

/// One thing that the bed is doing.
#[derive(Debug)]
pub struct Step {
    what: String,
    started: Instant,
    bar: Option<ProgressBar>,
    progress: Progress,
    finished: bool,
}

impl Step {
    /// Shows more about what is being done (`"412 of 1,900 packages"`).
    pub fn update(&self, detail: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {detail}", self.what));
        }
    }

    /// Ends the step well.
    pub fn done(mut self) {
        self.finish("✔");
    }

    fn finish(&mut self, sign: &str) {
        self.finished = true;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.progress.say(&format!("{sign} {} ({seconds:.1} s)", self.what));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.finished {
            self.finish("✗");
        }
    }
}
