//! Forms with files (`multipart/form-data`, RFC 7578): fields in memory, files on the disk.
//!
//! `multer` parses the body. It requires a stream that may move between threads, which our bodies may not. So
//! one half of the task feeds the other through a channel ([`receive`]).

use super::{BodyError, BoxError, Request, RequestBody};
use ringroad_engine::fs::File;
use ringroad_engine::sync::bounded;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::pin;
use tempfile::NamedTempFile;

/// Limits of a form with files, and the folder for its files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormLimits {
    /// Maximum number of fields and files together; 1,000 by default.
    pub parts: usize,
    /// Maximum bytes of all fields together, including the names of the files; 1 MiB by default. They are in
    /// memory.
    pub text_bytes: usize,
    /// Maximum bytes of one file; by default those of the body ([`Limits::body_bytes`](crate::Limits)).
    pub file_bytes: u64,
    /// Folder for the files; by default the system's folder for temporary files (`TMPDIR`).
    pub folder: PathBuf,
}

impl Default for FormLimits {
    fn default() -> FormLimits {
        FormLimits { parts: 1_000, text_bytes: 1 << 20, file_bytes: u64::MAX, folder: std::env::temp_dir() }
    }
}

/// A received form with files: see [`Request::form_data`].
#[derive(Debug, Default)]
pub struct FormData {
    fields: Vec<(String, String)>,
    files: Vec<Upload>,
}

impl FormData {
    /// Returns the first field of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the names and values of the fields that are not files.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the first file of this name.
    pub fn file(&self, name: &str) -> Option<&Upload> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns the files.
    pub fn files(&self) -> &[Upload] {
        &self.files
    }

    /// Takes the files out.
    pub fn into_files(self) -> Vec<Upload> {
        self.files
    }
}

/// A file of a form, stored under a unique name. Dropping it removes the file.
#[derive(Debug)]
pub struct Upload {
    name: String,
    file_name: String,
    content_type: Option<String>,
    bytes: u64,
    stored: NamedTempFile,
}

impl Upload {
    /// Returns the name of the form field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that the client gave the file. It is untrusted text, and must not be used as a path.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Returns the media type that the client gave the file.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the path of the stored file, which exists until this is dropped.
    pub fn path(&self) -> &Path {
        self.stored.path()
    }

    /// Moves the file to this path in the same file system. An existing file is replaced.
    ///
    /// # Errors
    /// The file cannot be renamed: to another file system, or without permission.
    pub fn keep(self, path: impl AsRef<Path>) -> std::io::Result<std::fs::File> {
        self.stored.persist(path).map_err(|why| why.error)
    }
}

impl Request {
    /// Receives a form with files (`multipart/form-data`), with the default [`FormLimits`]. The body itself
    /// is at most as long as the server's limits allow.
    ///
    /// # Errors
    /// As [`form_data_with`](Self::form_data_with).
    ///
    /// ```
    /// use ringroad_http::{BodyError, Request, Server, post};
    ///
    /// async fn upload(mut request: Request) -> Result<String, BodyError> {
    ///     let form = request.form_data().await?;
    ///     let photo = form.file("photo").ok_or(BodyError::Form("no photo".to_owned()))?;
    ///     Ok(format!("{} has {} bytes", photo.file_name(), photo.bytes()))
    /// }
    /// let server = Server::new().route("/photos", post(upload).body_bytes_max(20 << 20));
    /// ```
    pub async fn form_data(&mut self) -> Result<FormData, BodyError> {
        self.form_data_with(&FormLimits::default()).await
    }

    /// Receives a form with files, within these limits.
    ///
    /// # Errors
    /// [`BodyError::Type`] (415): another media type. [`BodyError::Multipart`] (400): not such a form, or too
    /// many parts. [`BodyError::TooLong`] (413): a limit of bytes. [`BodyError::Store`] (500): a file cannot
    /// be stored. Others as [`bytes`](Self::bytes). Files that were stored by then are removed.
    pub async fn form_data_with(&mut self, limits: &FormLimits) -> Result<FormData, BodyError> {
        if !self.is_of_type("multipart/form-data") {
            return Err(BodyError::Type("multipart/form-data"));
        }
        let line = self.header("content-type").unwrap_or_default();
        let boundary = multer::parse_boundary(line).map_err(|why| BodyError::Multipart(why.to_string()))?;
        receive(self.body(), boundary, limits).await
    }
}

/// Feeds the body to the parser until the form is complete.
async fn receive(
    body: &mut RequestBody,
    boundary: String,
    limits: &FormLimits,
) -> Result<FormData, BodyError> {
    let (give, take) = bounded::<Result<Vec<u8>, Cut>>(2);
    // Why the body was not received: the parser only learns that it failed.
    let failed = RefCell::new(None);
    let mut feeding = pin!(async {
        let give = give;
        while let Some(piece) = body.next().await {
            let piece = match piece {
                Ok(chunk) => Ok(chunk.into_vec()),
                Err(why) => {
                    *failed.borrow_mut() = Some(why);
                    Err(Cut)
                }
            };
            if give.send(piece).await.is_err() {
                return;
            }
        }
    });
    let mut parsing = pin!(parse(multer::Multipart::new(take, boundary), limits));
    let mut is_fed = false;
    let form = poll_fn(|context| {
        if !is_fed {
            is_fed = feeding.as_mut().poll(context).is_ready();
        }
        // Whatever either half puts into the channel or takes out of it wakes this task for the other half.
        parsing.as_mut().poll(context)
    })
    .await;
    match failed.take() {
        Some(why) => Err(why),
        None => form,
    }
}

/// The body ended before its end.
#[derive(Debug)]
struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body did not come")
    }
}

impl std::error::Error for Cut {}

async fn parse(mut parts: multer::Multipart<'_>, limits: &FormLimits) -> Result<FormData, BodyError> {
    let malformed = |why: multer::Error| BodyError::Multipart(why.to_string());
    let mut form = FormData::default();
    let mut text_left = limits.text_bytes;
    let mut spend = |bytes: usize| match text_left.checked_sub(bytes) {
        Some(left) => {
            text_left = left;
            Ok(())
        }
        None => Err(BodyError::TooLong(limits.text_bytes)),
    };
    while let Some(mut part) = parts.next_field().await.map_err(malformed)? {
        if form.fields.len() + form.files.len() >= limits.parts {
            return Err(BodyError::Multipart(format!("more than {} parts", limits.parts)));
        }
        let name = part.name().map(str::to_owned);
        let name = name.ok_or_else(|| BodyError::Multipart("a part without a name".to_owned()))?;
        spend(name.len())?;
        let Some(file_name) = part.file_name().map(str::to_owned) else {
            let mut text = Vec::new();
            while let Some(piece) = part.chunk().await.map_err(malformed)? {
                spend(piece.len())?;
                text.extend_from_slice(&piece);
            }
            let text = String::from_utf8(text);
            let text = text.map_err(|_| BodyError::Multipart(format!("{name:?} is not UTF-8")))?;
            form.fields.push((name, text));
            continue;
        };
        let content_type = part.content_type().map(ToString::to_string);
        spend(file_name.len() + content_type.as_ref().map_or(0, String::len))?;
        let stored =
            NamedTempFile::with_prefix_in("upload-", &limits.folder).map_err(|why| store(limits, why))?;
        let file = stored.as_file().try_clone().map_err(|why| store(limits, why))?;
        let file = File::from_std(file);
        let mut bytes = 0;
        while let Some(piece) = part.chunk().await.map_err(malformed)? {
            let after = bytes + piece.len() as u64;
            if after > limits.file_bytes {
                return Err(BodyError::TooLong(usize::try_from(limits.file_bytes).unwrap_or(usize::MAX)));
            }
            file.write_all_at(piece, bytes).await.0.map_err(|why| store(limits, why))?;
            bytes = after;
        }
        form.files.push(Upload { name, file_name, content_type, bytes, stored });
    }
    Ok(form)
}

fn store(limits: &FormLimits, why: impl fmt::Display) -> BodyError {
    BodyError::Store(BoxError::from(format!("in {}: {why}", limits.folder.display())))
}
