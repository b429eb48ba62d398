//! The watch protocol: a stream of frames, cut out of whatever pieces the network delivers.
//!
//! In protobuf a frame is four bytes of length and a bare `WatchEvent`, whose object is enveloped again; in JSON it is a line.

use super::envelope::{self, Encoding};
use super::json;
use super::meta::OnlyMeta;
use super::revision::RawExtension;
use super::status::Status;
use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Larger frames are refused: etcd stores no object of more than 1.5 MiB by default, and nobody sets eight.
const LARGEST_FRAME_BYTES: usize = 16 << 20;

/// What one frame says. Objects are not decoded yet.
#[derive(Clone, Debug)]
pub enum Frame {
    /// The object exists, as it is now.
    Upsert(Bytes),
    /// The object is gone; this was its last state.
    Delete(Bytes),
    /// Nothing older than this version will come.
    Bookmark(u64),
    /// The server ended the watch; 410 asks for a new list.
    Error(Status),
}

impl Frame {
    /// The version of what it shows, if that can be read.
    pub fn version(&self, encoding: Encoding) -> Option<u64> {
        match self {
            Frame::Upsert(object) | Frame::Delete(object) => version_of(encoding, object),
            Frame::Bookmark(version) => Some(*version),
            Frame::Error(_) => None,
        }
    }
}

fn version_of(encoding: Encoding, object: &Bytes) -> Option<u64> {
    match encoding {
        Encoding::Protobuf => OnlyMeta::decode(envelope::open(object).ok()?).ok()?.resource_version(),
        Encoding::Json => json::find_version(object),
    }
}

/// `metav1.WatchEvent`.
#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    type_: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Cuts a byte stream into frames.
#[derive(Debug)]
pub struct Frames {
    encoding: Encoding,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
}

impl Frames {
    /// For a stream of the given encoding.
    pub fn new(encoding: Encoding) -> Self {
        Frames {
            encoding,
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next complete frame; `None` until more pieces come. An error means that the stream makes no sense from here on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, String> {
        let Some(frame) = self.cut()? else { return Ok(None) };
        match self.encoding {
            Encoding::Protobuf => read_protobuf(frame).map(Some),
            Encoding::Json => read_json(&frame).map(Some),
        }
    }

    fn cut(&mut self) -> Result<Option<Bytes>, String> {
        let frame = match self.encoding {
            Encoding::Protobuf => self.cut_prefixed()?,
            Encoding::Json => self.cut_line(),
        };
        if frame.is_none() && self.buffer.len() > LARGEST_FRAME_BYTES {
            return Err(format!("a watch frame exceeds {LARGEST_FRAME_BYTES} bytes"));
        }
        Ok(frame)
    }

    fn cut_prefixed(&mut self) -> Result<Option<Bytes>, String> {
        let Some(prefix) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > LARGEST_FRAME_BYTES {
            return Err(format!("a watch frame of {length} bytes exceeds {LARGEST_FRAME_BYTES}"));
        }
        if self.buffer.len() < 4 + length {
            self.buffer.reserve(4 + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    fn cut_line(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end + 1).freeze();
        self.searched = 0;
        Some(line.slice(..line.len() - 1))
    }
}

fn read_protobuf(frame: Bytes) -> Result<Frame, String> {
    let event = WatchEvent::decode(frame).map_err(|e| format!("broken watch event: {e}"))?;
    let object = event.object.unwrap_or_default().raw;
    classify(&event.type_, Encoding::Protobuf, object)
}

fn read_json(line: &Bytes) -> Result<Frame, String> {
    let event: JsonEvent<'_> = serde_json::from_slice(line).map_err(|e| format!("broken watch event: {e}"))?;
    classify(
        event.type_,
        Encoding::Json,
        line.slice_ref(event.object.get().as_bytes()),
    )
}

fn classify(type_: &str, encoding: Encoding, object: Bytes) -> Result<Frame, String> {
    match type_ {
        "ADDED" | "MODIFIED" => Ok(Frame::Upsert(object)),
        "DELETED" => Ok(Frame::Delete(object)),
        "BOOKMARK" => match version_of(encoding, &object) {
            Some(version) => Ok(Frame::Bookmark(version)),
            None => Err("a bookmark without a version".into()),
        },
        "ERROR" => Ok(Frame::Error(Status::read(0, encoding, &object))),
        other => Err(format!("unknown watch event type {other:?}")),
    }
}
