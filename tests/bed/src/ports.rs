//! Free ports and loopback addresses for the servers of one bed, such that beds that start at the
//! same time never get the same.
//!
//! Asking the system for a free port and handing it to a program leaves a moment in which any
//! outgoing connection may take it. So ports come in blocks from below the ephemeral range, and a
//! block belongs to whoever holds its lock file.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::Path;

use tenon_aws_double::cache::{CacheError, Lock};

/// Below Linux' ephemeral range (32768 and up), above what services usually use.
const FIRST_PORT: u16 = 20_000;
const BLOCK: u16 = 32;
const BLOCKS: u16 = 380;

/// No port is left.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The lock files can't be used.
    #[error("can't reserve ports")]
    Lock(#[source] CacheError),
    /// Every block is taken.
    #[error(
        "no free block of ports between {FIRST_PORT} and 32160: stop other beds, or remove what listens there"
    )]
    NoBlock,
    /// The block is used up.
    #[error("all {BLOCK} ports of the bed are in use")]
    BlockUsedUp,
}

/// A block of ports on loopback that no other bed uses; held until dropped.
#[derive(Debug)]
pub struct Ports {
    index: u16,
    next: u16,
    _lock: Lock,
}

impl Ports {
    /// Takes a block; `cache` is the cache directory, which holds the locks.
    ///
    /// # Errors
    /// When all blocks are taken.
    pub fn reserve(cache: &Path) -> Result<Self, PortError> {
        for index in 0..BLOCKS {
            let path = cache.join(format!("ports/{}", FIRST_PORT + index * BLOCK));
            if let Some(lock) = Lock::try_acquire(&path).map_err(PortError::Lock)? {
                return Ok(Self { index, next: 0, _lock: lock });
            }
        }
        Err(PortError::NoBlock)
    }

    /// A port of the block on which nobody listens.
    ///
    /// # Errors
    /// When the block is used up.
    pub fn take(&mut self) -> Result<u16, PortError> {
        while self.next < BLOCK {
            let port = FIRST_PORT + self.index * BLOCK + self.next;
            self.next += 1;
            if TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
        Err(PortError::BlockUsedUp)
    }

    /// The first three bytes of the loopback addresses that belong to this block alone (`127.x.y`);
    /// pods get theirs from it.
    pub(crate) fn loopback_prefix(&self) -> [u8; 3] {
        let [high, low] = self.index.to_be_bytes();
        [127, 100 + high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_get_different_ports_and_addresses() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut one = Ports::reserve(dir.path()).expect("block");
        let mut two = Ports::reserve(dir.path()).expect("block");
        assert_ne!(one.loopback_prefix(), two.loopback_prefix());
        let first = one.take().expect("port");
        assert_ne!(first, one.take().expect("port"));
        assert_ne!(first, two.take().expect("port"));
    }

    #[test]
    fn a_port_somebody_listens_on_is_passed_over() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut ports = Ports::reserve(dir.path()).expect("block");
        let first = ports.take().expect("port");
        ports.next = 0;
        let _listener =
            TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, first)).expect("bind");
        // Not the next one: lower ones may have been in use a moment ago.
        assert_ne!(ports.take().expect("port"), first);
    }
}
