//! Waiting for the GPU in a browser. Firefox looks whether a map or a submission is done only every 100 ms, and whenever something is
//! submitted (bug 1870699): so while we wait, we submit nothing, again and again. Each such submission is a message to the browser's
//! GPU process, which may be behind with those it has: the longer a wait lasts, the longer the pauses grow.
//!
//! How to let a moment pass is the event loop's affair: [`super::Host::pause`], which knows the browser. In others and natively nothing
//! here is needed.

use super::host::host;
use super::oneshot::Receiver;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use web_time::{Duration, Instant};

/// A pause is at least this long, and else this part of the wait so far: by so much at most is the end seen late.
const LEAST: Duration = Duration::from_millis(2);
const PART: u32 = 4;

/// The pause after a wait of so long.
fn pause_after(waited: Duration) -> Duration {
    LEAST.max(waited / PART)
}

/// What the device's callback sends; meanwhile the queue is nudged from time to time.
pub(super) async fn receive<T>(queue: &wgpu::Queue, mut receiver: Receiver<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let Some(mut moment) = host().and_then(|host| host.pause(pause_after(start.elapsed()))) else { return receiver.await };
        let first = poll_fn(|context| match Pin::new(&mut receiver).poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => moment.as_mut().poll(context).map(|()| None),
        });
        if let Some(value) = first.await {
            return value;
        }
        queue.submit(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::host::{Host, Moment, set_host};
    use crate::gpu::{Gpu, oneshot};
    use std::cell::Cell;
    use std::rc::Rc;

    thread_local! {
        static PAUSES: Cell<usize> = const { Cell::new(0) };
        static SENDER: Cell<Option<oneshot::Sender<u32>>> = const { Cell::new(None) };
    }

    struct Pausing;

    impl Host for Pausing {
        /// Ready at once; the third sends the value.
        fn pause(&self, _: Duration) -> Option<Moment> {
            PAUSES.set(PAUSES.get() + 1);
            if PAUSES.get() == 3
                && let Some(sender) = SENDER.take()
            {
                sender.send(7);
            }
            Some(Box::pin(async {}))
        }
    }

    #[test]
    fn a_long_wait_has_few_pauses_and_its_end_is_seen_within_a_quarter() {
        let (mut waited, mut n) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(1) {
            let pause = pause_after(waited);
            assert!(pause <= LEAST.max(waited / 4), "{pause:?} after {waited:?}");
            waited += pause;
            n += 1;
        }
        assert!(n < 30, "{n} pauses in a second");
    }

    #[test]
    fn the_value_comes_though_many_pauses_end_before_it() {
        let Some(gpu) = Gpu::for_tests() else { return };
        let gpu = Rc::new(gpu);
        let (sender, receiver) = oneshot::channel();
        SENDER.set(Some(sender));
        set_host(Rc::new(Pausing));
        assert_eq!(pollster::block_on(receive(&gpu.queue, receiver)), Some(7));
        assert_eq!(PAUSES.get(), 3);
        let (sender, receiver) = oneshot::channel::<u32>();
        drop(sender);
        assert_eq!(pollster::block_on(receive(&gpu.queue, receiver)), None);
    }
}
