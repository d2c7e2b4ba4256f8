//! What has to be done however a command ends, also when it is interrupted from the keyboard.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

/// How long it may take in all: whoever pressed Ctrl-C is waiting.
const AT_MOST: Duration = Duration::from_secs(5);

/// Work for the end of a command. Clones share it.
#[derive(Clone, Default)]
pub struct Cleanup(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl Cleanup {
    /// Adds work. What was added last is done first.
    pub fn add(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(work.boxed());
    }

    /// Does it all, as far as there is time.
    pub async fn run(self) {
        let work = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async {
            for one in work.into_iter().rev() {
                one.await;
            }
        };
        if tokio::time::timeout(AT_MOST, all).await.is_err() {
            tracing::warn!(
                "the cleanup did not complete: there was no answer in {} s",
                AT_MOST.as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_is_done_first_and_nothing_is_waited_for_too_long() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let cleanup = Cleanup::default();
        cleanup.add(std::future::pending());
        for number in [1, 2] {
            let done = Arc::clone(&done);
            cleanup.add(async move { done.lock().expect("not poisoned").push(number) });
        }
        cleanup.run().await;
        assert_eq!(*done.lock().expect("not poisoned"), [2, 1]);
    }
}
