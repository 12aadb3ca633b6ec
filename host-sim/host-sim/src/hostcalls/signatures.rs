//! Envoy's foreign functions `sign` and `verify_signature`: RSA (PKCS #1 v1.5) and ECDSA over SHA-2.

use pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer, pem::PemObject as _};
use ring::{
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, RsaEncoding, RsaKeyPair},
};
use webpki::{RawPublicKeyEntity, ring as algorithms};

use crate::{
    abi::Status,
    vm::memory::Refusal,
    wire::protobuf::{self, Field},
};

/// Why there is no result.
pub(super) enum Failure {
    /// The guest is told.
    Status(Status),
    /// The host cannot do it, though Envoy can.
    Unsupported(&'static str),
}

impl Failure {
    /// What the call answers. What the host cannot do ends the guest.
    pub(super) fn refusal(self, function: &str) -> Refusal {
        match self {
            Self::Status(status) => status.into(),
            Self::Unsupported(why) => {
                let call = format!("proxy_call_foreign_function({function:?})");
                Refusal::Trap(wasmtime::Error::msg(format!("host function not supported: {call}: {why}")))
            }
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

const OTHER_KEY: Failure =
    Failure::Unsupported("only RSA keys from 2048 bits and ECDSA keys of P-256 and P-384 are supported");

/// A hash function by the name that Envoy gives it.
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The function of this name; `None` for one that Envoy does not have either.
    fn named(name: &str) -> Result<Option<Self>, Failure> {
        Ok(Some(match name.to_ascii_lowercase().as_str() {
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "sha1" | "sha224" => {
                return Err(Failure::Unsupported("only SHA-256, SHA-384 and SHA-512 are supported"));
            }
            _ => return Ok(None),
        }))
    }
}

/// The arguments of both functions, whose fields have other numbers.
#[derive(Default)]
struct Arguments<'a> {
    hash: &'a str,
    key_der: &'a [u8],
    key_pem: &'a [u8],
    signature: &'a [u8],
    text: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Reads a message whose fields' numbers are given in the order of `Arguments`' own.
    fn read(message: &'a [u8], numbers: [u64; 5]) -> Result<Self, Status> {
        let mut arguments = Arguments::default();
        for (number, field) in protobuf::fields(message).ok_or(Status::BadArgument)? {
            let Field::Bytes(bytes) = field else { continue };
            let [hash, key_der, key_pem, signature, text] = numbers.map(|wanted| wanted == number);
            if hash {
                arguments.hash = std::str::from_utf8(bytes).map_err(|_| Status::BadArgument)?;
            } else if key_der {
                arguments.key_der = bytes;
            } else if key_pem {
                arguments.key_pem = bytes;
            } else if signature {
                arguments.signature = bytes;
            } else if text {
                arguments.text = bytes;
            }
        }
        // One key, in one form.
        if arguments.key_der.is_empty() == arguments.key_pem.is_empty() {
            return Err(Status::BadArgument);
        }
        Ok(arguments)
    }
}

/// `VerifySignatureArguments` to `VerifySignatureResult`.
pub(super) fn verify(message: &[u8]) -> Result<Vec<u8>, Failure> {
    let arguments = Arguments::read(message, [1, 2, 5, 3, 4])?;
    let key = match arguments.key_pem {
        [] => SubjectPublicKeyInfoDer::from(arguments.key_der),
        // What is no PEM is no key either.
        pem => SubjectPublicKeyInfoDer::from_pem_slice(pem).unwrap_or_else(|_| Vec::new().into()),
    };
    let Some(hash) = Hash::named(arguments.hash)? else {
        return Ok(verdict(&format!("{} is not supported.", arguments.hash)));
    };
    let Ok(entity) = RawPublicKeyEntity::try_from(&key) else {
        return Ok(verdict("Failed to initialize digest verify."));
    };
    let algorithms = match hash {
        Hash::Sha256 => [
            algorithms::RSA_PKCS1_2048_8192_SHA256,
            algorithms::ECDSA_P256_SHA256,
            algorithms::ECDSA_P384_SHA256,
        ],
        Hash::Sha384 => [
            algorithms::RSA_PKCS1_2048_8192_SHA384,
            algorithms::ECDSA_P256_SHA384,
            algorithms::ECDSA_P384_SHA384,
        ],
        // No curve here goes with it.
        Hash::Sha512 => [algorithms::RSA_PKCS1_2048_8192_SHA512; 3],
    };
    for algorithm in algorithms {
        match entity.verify_signature(algorithm, arguments.text, arguments.signature) {
            Ok(()) => return Ok(verdict("")),
            Err(webpki::Error::InvalidSignatureForPublicKey) => {
                return Ok(verdict("Failed to verify digest. Error code: 0"));
            }
            // Another kind of key.
            Err(_) => {}
        }
    }
    Err(OTHER_KEY)
}

/// `VerifySignatureResult`: without an error, it is valid.
fn verdict(error: &str) -> Vec<u8> {
    let mut result = Vec::new();
    if error.is_empty() {
        protobuf::put_true(&mut result, 1);
    }
    protobuf::put_bytes(&mut result, 2, error.as_bytes());
    result
}

/// `SignResult` of what could not be signed.
fn no_signature(error: &str) -> Vec<u8> {
    let mut result = Vec::new();
    protobuf::put_bytes(&mut result, 3, error.as_bytes());
    result
}

/// `SignArguments` to `SignResult`.
pub(super) fn sign(message: &[u8]) -> Result<Vec<u8>, Failure> {
    // No field of these arguments is a signature.
    let arguments = Arguments::read(message, [1, 2, 4, u64::MAX, 3])?;
    let key = match arguments.key_pem {
        [] => PrivateKeyDer::Pkcs8(arguments.key_der.into()),
        // What is no PEM is no key either.
        pem => PrivateKeyDer::from_pem_slice(pem).unwrap_or_else(|_| PrivateKeyDer::Pkcs8(Vec::new().into())),
    };
    let Some(hash) = Hash::named(arguments.hash)? else {
        return Ok(no_signature(&format!("{} is not supported.", arguments.hash)));
    };
    if key.secret_der().is_empty() {
        return Ok(no_signature("Invalid key type: private key required for signing operation."));
    }
    let (rsa, ecdsa): (&dyn RsaEncoding, Option<&EcdsaSigningAlgorithm>) = match hash {
        Hash::Sha256 => (&signature::RSA_PKCS1_SHA256, Some(&signature::ECDSA_P256_SHA256_ASN1_SIGNING)),
        Hash::Sha384 => (&signature::RSA_PKCS1_SHA384, Some(&signature::ECDSA_P384_SHA384_ASN1_SIGNING)),
        Hash::Sha512 => (&signature::RSA_PKCS1_SHA512, None),
    };
    let random = SystemRandom::new();
    let pair = match &key {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        key => RsaKeyPair::from_pkcs8(key.secret_der()),
    };
    let signature = if let Ok(pair) = pair {
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(rsa, &random, arguments.text, &mut signature).map(|()| signature)
    } else {
        let pair =
            ecdsa.and_then(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, key.secret_der(), &random).ok());
        let pair = pair.ok_or(OTHER_KEY)?;
        pair.sign(&random, arguments.text).map(|signature| signature.as_ref().to_vec())
    };
    let signature = signature.map_err(|_| Status::InternalFailure)?;
    let mut result = Vec::new();
    protobuf::put_true(&mut result, 1);
    protobuf::put_bytes(&mut result, 2, &signature);
    Ok(result)
}
