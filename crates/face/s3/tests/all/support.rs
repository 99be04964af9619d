//! A drive with a door, and a program that speaks HTTP by itself.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvdrive::{Builder, Drive, Error};
use kvdrive_s3::{Access, Bucket, Door, Way, listen};
use kvdrive_sim::wall::Pace;

/// Bytes of the largest value, and so of a part.
pub const PART: usize = 64 << 10;

/// A drive with a door.
pub struct Served {
    pub drive: Arc<Mutex<Option<Drive>>>,
    pub at: SocketAddr,
}

/// A small drive whose largest value has [`PART`] bytes.
pub fn small() -> Builder {
    // Each value is one command: rules match `store`.
    let builder = kvdrive::build().profile("cosmos-plus").transfer("prp");
    builder.set("controller.max_value_bytes", PART).pace(Pace::Off)
}

impl Served {
    pub fn new() -> Served {
        Served::of(small(), None)
    }

    pub fn of(builder: Builder, access: Option<Access>) -> Served {
        let drive = Arc::new(Mutex::new(Some(builder.open().unwrap())));
        let place = drive.clone();
        let open = move || {
            let place = place.lock().unwrap();
            let drive = place.as_ref().ok_or(Error::Off)?;
            let value_max_bytes = drive.namespace()?.value_max_bytes;
            Ok(Way { client: drive.async_client()?, value_max_bytes, drive: None })
        };
        let door = Door { buckets: vec![Arc::new(Bucket::new("kvdrive".into(), open))], access };
        Served { drive, at: listen("127.0.0.1:0".parse().unwrap(), door).unwrap() }
    }

    /// Does something with the drive.
    pub fn on_drive<T>(&self, act: impl FnOnce(&Drive) -> T) -> T {
        act(self.drive.lock().unwrap().as_ref().unwrap())
    }

    /// A connection on which nothing was sent.
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    }

    /// Sends a request whose length is told, and returns its answer.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Told {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.at);
        headers.iter().for_each(|line| request += &format!("{line}\r\n"));
        if !body.is_empty() || method == "PUT" || method == "POST" {
            request += &format!("content-length: {}\r\n", body.len());
        }
        self.raw(&[(request + "\r\n").as_bytes(), body].concat())
    }

    /// Sends bytes, ends its side, and returns the answer.
    pub fn raw(&self, bytes: &[u8]) -> Told {
        let mut socket = self.connect();
        // The door may answer and close before all is sent.
        _ = socket.write_all(bytes);
        Told::from(socket)
    }

    pub fn get(&self, path: &str) -> Told {
        self.ask("GET", path, &[], &[])
    }

    /// As [`Served::get`], until the door has connected to a drive that was away.
    pub fn get_again(&self, path: &str) -> Told {
        let told = self.get(path);
        if told.status == 503 { self.get_again(path) } else { told }
    }

    pub fn put(&self, path: &str, body: &[u8]) -> Told {
        self.ask("PUT", path, &[], body)
    }

    /// Names that a listing has.
    pub fn listed(&self) -> Vec<String> {
        self.get("/kvdrive?list-type=2&encoding-type=url").texts("Key")
    }

    /// Pairs on the drive.
    pub fn pairs(&self) -> u64 {
        self.on_drive(|drive| drive.count(b"").unwrap())
    }
}

/// An answer.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Told {
    pub fn from(mut socket: TcpStream) -> Told {
        let mut bytes = Vec::new();
        // A connection that is reset has told what it had.
        _ = socket.read_to_end(&mut bytes);
        _ = socket.shutdown(Shutdown::Both);
        while bytes.starts_with(b"HTTP/1.1 100") {
            let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            bytes.drain(..end);
        }
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Told { status, head, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The texts of all elements of a name.
    pub fn texts(&self, element: &str) -> Vec<String> {
        let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
        let text = self.text();
        text.split(&begin).skip(1).map(|rest| rest.split(&end).next().unwrap().to_owned()).collect()
    }

    /// The status, and the code of the error.
    pub fn failure(&self) -> (u16, String) {
        (self.status, self.texts("Code").concat())
    }
}

/// Bytes that look like no others.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    next.take(length).collect()
}
