//! Sessions by s2n-tls. Its calls must be repeated after more bytes have arrived. So they are futures that are polled
//! at each arrival, and no task waits in them.

use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use kvdrive_nvme::auth::Hash;
use once_cell::race::OnceBox;
use s2n_tls::config::Config;
use s2n_tls::connection::{Builder, Connection};
use s2n_tls::enums::{Mode, PskHmac};
use s2n_tls::error::Error;
use s2n_tls::security::Policy;
use s2n_tls_tokio::{TlsAcceptor, TlsConnector, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Failure, Known, Unavailable};
use crate::TlsPsk;

/// Only TLS 1.3, with secp256r1, x25519 and secp384r1. It has a third cipher suite, which NVMe/TCP does not
/// use: [`Session::shake_hands`] refuses it.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3-2023";

static CONFIG: OnceBox<Result<Config, Error>> = OnceBox::new();

fn config() -> Result<Config, Error> {
    let mut config = Config::builder();
    config.set_security_policy(&Policy::from_version(POLICY)?)?;
    // s2n-tls would wait for seconds before it reports an error to the other end, to hide the time of a CBC
    // check; TLS 1.3 has no CBC.
    config.set_max_blinding_delay(0)?;
    config.build()
}

/// One end of a TLS connection.
pub struct Session {
    bytes: Arc<Mutex<Bytes>>,
    state: SessionState,
    /// The usable PSKs.
    psks: Known,
}

type Shaking = Pin<Box<dyn Future<Output = Result<TlsStream<End>, Error>> + Send>>;

enum SessionState {
    Shaking(Shaking),
    Open(TlsStream<End>),
    Failed,
}

/// Received bytes that were not read yet, and bytes to be sent.
#[derive(Default)]
struct Bytes {
    came: Vec<u8>,
    read: usize,
    output: Vec<u8>,
}

/// The transport on which s2n-tls reads and writes.
struct End(Arc<Mutex<Bytes>>);

fn lock(bytes: &Mutex<Bytes>) -> MutexGuard<'_, Bytes> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = lock(&self.0);
        let Bytes { came, read, .. } = &mut *bytes;
        if *read == came.len() {
            // The caller polls again when bytes arrive, so no wake-up is needed; but a pending call must
            // arrange one.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let count = to.remaining().min(came.len() - *read);
        to.put_slice(&came[*read..*read + count]);
        *read += count;
        if *read == came.len() {
            came.clear();
            *read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        lock(&self.0).output.extend_from_slice(from);
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Creates connections that know these PSKs.
#[derive(Clone)]
struct Knowing(Known);

impl Builder for Knowing {
    type Output = Connection;

    fn build_connection(&self, mode: Mode) -> Result<Connection, Error> {
        let config = match CONFIG.get_or_init(|| Box::new(config())) {
            Ok(config) => config.clone(),
            Err(error) => return Err(Error::application(error.to_string().into())),
        };
        let mut connection = config.build_connection(mode)?;
        for psk in self.0.iter() {
            let mut external = s2n_tls::psk::Psk::builder()?;
            external.set_identity(psk.identity.as_bytes())?;
            external.set_secret(&psk.secret)?;
            external.set_hmac(if psk.hash == Hash::Sha384 { PskHmac::SHA384 } else { PskHmac::SHA256 })?;
            connection.append_psk(&external.build()?)?;
        }
        Ok(connection)
    }
}

impl Session {
    /// A subsystem's end, which accepts hosts with these PSKs.
    ///
    /// # Errors
    /// None here: this program was built with TLS.
    pub fn server(psks: &Known) -> Result<Session, Unavailable> {
        let bytes = Arc::<Mutex<Bytes>>::default();
        let (end, acceptor) = (End(bytes.clone()), TlsAcceptor::new(Knowing(psks.clone())));
        let shaking = Box::pin(async move { acceptor.accept(end).await });
        Ok(Session { bytes, state: SessionState::Shaking(shaking), psks: psks.clone() })
    }

    /// A host's end.
    ///
    /// # Errors
    /// None here: this program was built with TLS.
    pub fn client(psk: &TlsPsk) -> Result<Session, Unavailable> {
        let psks: Known = Arc::new([psk.clone()]);
        let bytes = Arc::<Mutex<Bytes>>::default();
        let (end, connector) = (End(bytes.clone()), TlsConnector::new(Knowing(psks.clone())));
        let shaking = Box::pin(async move { connector.connect("", end).await });
        Ok(Session { bytes, state: SessionState::Shaking(shaking), psks })
    }

    /// Continues with the bytes received so far; returns the PSK once both ends have authenticated each other. There
    /// may be output after a failure as well: the message that reports it to the other end.
    ///
    /// # Errors
    /// The handshake has failed, now or before.
    pub fn shake_hands(&mut self) -> Result<Option<TlsPsk>, Failure> {
        let SessionState::Shaking(shaking) = &mut self.state else {
            return Err(Failure("there was a handshake already".into()));
        };
        let polled = shaking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(ended) = polled else { return Ok(None) };
        self.state = SessionState::Failed;
        let stream = ended.map_err(|error| Failure(described(&error)))?;
        let psk = self.agreed(stream.as_ref()).map_err(|error| Failure(described(&error)))?;
        let psk =
            psk.ok_or_else(|| Failure("an unknown PSK, or a cipher suite that does not match it".into()))?;
        self.state = SessionState::Open(stream);
        Ok(Some(psk))
    }

    /// The PSK of an established connection, if the cipher suite matches it.
    fn agreed(&self, connection: &Connection) -> Result<Option<TlsPsk>, Error> {
        let mut identity = vec![0; connection.negotiated_psk_identity_length()?];
        connection.negotiated_psk_identity(&mut identity)?;
        let suite = connection.cipher_suite()?;
        let is_its = |psk: &&TlsPsk| {
            let own =
                if psk.hash == Hash::Sha384 { "TLS_AES_256_GCM_SHA384" } else { "TLS_AES_128_GCM_SHA256" };
            psk.identity.as_bytes() == identity && suite == own
        };
        Ok(self.psks.iter().find(is_its).cloned())
    }

    /// Takes bytes received from the network.
    pub fn receive(&mut self, bytes: &[u8]) {
        lock(&self.bytes).came.extend_from_slice(bytes);
    }

    /// Appends the bytes to be sent to `to`.
    pub fn take_output(&mut self, to: &mut Vec<u8>) {
        to.append(&mut lock(&self.bytes).output);
    }

    /// Tells the other end that nothing more will be sent.
    pub fn close(&mut self) {
        if let SessionState::Open(stream) = &mut self.state {
            // If the message cannot be sent, the other end sees the connection close.
            let _ = Pin::new(stream).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TlsStream<End>>> {
        match &mut self.state {
            SessionState::Open(stream) => Ok(Pin::new(stream)),
            SessionState::Shaking(_) => Err(ErrorKind::WouldBlock.into()),
            SessionState::Failed => Err(ErrorKind::NotConnected.into()),
        }
    }
}

/// A one-line description. If a host has no known PSK, s2n-tls continues with certificates, and reports that
/// there are none.
fn described(error: &Error) -> String {
    match error.name() {
        "S2N_ERR_NO_VALID_SIGNATURE_SCHEME" => "no PSK that is known here".to_owned(),
        name => format!("{} ({name})", error.message()),
    }
}

fn settled<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl Read for Session {
    /// Reads decrypted bytes; [`ErrorKind::WouldBlock`]: more bytes must arrive first. 0 bytes: the other end
    /// has closed its side.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        fn poll(stream: Pin<&mut TlsStream<End>>, into: &mut [u8]) -> Poll<io::Result<usize>> {
            let mut to = ReadBuf::new(into);
            ready!(stream.poll_read(&mut Context::from_waker(Waker::noop()), &mut to))?;
            Poll::Ready(Ok(to.filled().len()))
        }
        settled(poll(self.stream()?, into))
    }
}

impl Write for Session {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        settled(self.stream()?.poll_write(&mut Context::from_waker(Waker::noop()), from))
    }

    fn flush(&mut self) -> io::Result<()> {
        settled(self.stream()?.poll_flush(&mut Context::from_waker(Waker::noop())))
    }
}
