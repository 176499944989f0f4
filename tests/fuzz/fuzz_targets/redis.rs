//! Any bytes from whoever answers where a Redis should, through the socket, the bounds and the library's reader to what a
//! detector makes of them. The fuzzer's own limit of memory is the assertion, and that it ends.
#![no_main]

use std::cell::RefCell;
use std::path::PathBuf;

use keyholder::queue::{QueueProbe, Limit, Question, Scanner};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};

struct Scene {
    runtime: Runtime,
    listener: UnixListener,
    path: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("keyholder-fuzz-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let guard = runtime.enter();
        let listener = UnixListener::bind(&path).expect("a socket");
        drop(guard);
        Self { runtime, listener, path }
    }

    fn answer(&self, bytes: &[u8]) {
        let mut eyes = QueueProbe::new(&format!("unix://{}", self.path.display())).expect("an address");
        let questions = [Question::Key("beat".to_owned())];
        let serve = async {
            let (mut stream, _) = self.listener.accept().await.expect("it connects");
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(bytes).await;
        };
        let _ = self.runtime.block_on(async { tokio::join!(eyes.look(&questions), serve) });
    }
}

thread_local!(static SCENE: RefCell<Scene> = RefCell::new(Scene::new()));

fuzz_target!(|bytes: &[u8]| {
    // However the bytes are cut, the same is refused.
    let limit = Limit { string: 256, reply: usize::MAX, values: 64 };
    let whole = Scanner::new(limit).take(bytes);
    let mut single = Scanner::new(limit);
    assert_eq!(whole, bytes.chunks(1).try_for_each(|byte| single.take(byte)));
    SCENE.with_borrow(|scene| scene.answer(bytes));
});
