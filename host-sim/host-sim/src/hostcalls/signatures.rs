//! Envoy's foreign functions `sign` and `verify_signature`: RSA (PKCS #1 v1.5) and ECDSA over SHA-2.

use pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer, pem::PemObject as _};
use prost::Message;
use ring::{
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, RsaEncoding, RsaKeyPair},
};
use webpki::{RawPublicKeyEntity, ring as algorithms};

use crate::{abi::Status, hostcalls::guest::Refusal};

/// What the host cannot do, though Envoy can, ends the guest.
fn unsupported(function: &str, why: &str) -> Refusal {
    let call = format!("proxy_call_foreign_function({function:?})");
    Refusal::Trap(wasmtime::Error::msg(format!("host function not supported: {call}: {why}")))
}

/// What is supported of keys.
const KEYS: &str = "only RSA keys from 2048 bits and ECDSA keys of P-256 and P-384 are supported";

/// A hash function by the name that Envoy gives it.
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// The function of this name; `None` for one that Envoy does not have either.
    fn named(function: &str, name: &str) -> Result<Option<Self>, Refusal> {
        Ok(Some(match name.to_ascii_lowercase().as_str() {
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "sha1" | "sha224" => {
                return Err(unsupported(function, "only SHA-256, SHA-384 and SHA-512 are supported"));
            }
            _ => return Ok(None),
        }))
    }
}

#[derive(Message)]
struct VerifySignatureArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    public_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    signature: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    text: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    public_key_pem: Vec<u8>,
}

/// Without an error, it is valid.
#[derive(Message)]
struct VerifySignatureResult {
    #[prost(bool, tag = "1")]
    result: bool,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Message)]
struct SignArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    private_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    text: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    private_key_pem: Vec<u8>,
}

#[derive(Message)]
struct SignResult {
    #[prost(bool, tag = "1")]
    result: bool,
    #[prost(bytes = "vec", tag = "2")]
    signature: Vec<u8>,
    #[prost(string, tag = "3")]
    error: String,
}

/// A key comes in one form.
fn check_key(der: &[u8], pem: &[u8]) -> Result<(), Status> {
    if der.is_empty() == pem.is_empty() { Err(Status::BadArgument) } else { Ok(()) }
}

/// `VerifySignatureArguments` to `VerifySignatureResult`.
pub(super) fn verify(message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let arguments = VerifySignatureArguments::decode(message).map_err(|_| Status::BadArgument)?;
    check_key(&arguments.public_key, &arguments.public_key_pem)?;
    let key = match arguments.public_key_pem.as_slice() {
        [] => SubjectPublicKeyInfoDer::from(arguments.public_key.as_slice()),
        // What is no PEM is no key either.
        pem => SubjectPublicKeyInfoDer::from_pem_slice(pem).unwrap_or_else(|_| Vec::new().into()),
    };
    let Some(hash) = Hash::named("verify_signature", &arguments.hash_function)? else {
        return Ok(verdict(&format!("{} is not supported.", arguments.hash_function)));
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
        match entity.verify_signature(algorithm, &arguments.text, &arguments.signature) {
            Ok(()) => return Ok(verdict("")),
            Err(webpki::Error::InvalidSignatureForPublicKey) => {
                return Ok(verdict("Failed to verify digest. Error code: 0"));
            }
            // Another kind of key.
            Err(_) => {}
        }
    }
    Err(unsupported("verify_signature", KEYS))
}

fn verdict(error: &str) -> Vec<u8> {
    VerifySignatureResult { result: error.is_empty(), error: error.to_owned() }.encode_to_vec()
}

/// `SignResult` of what could not be signed.
fn no_signature(error: &str) -> Vec<u8> {
    SignResult { error: error.to_owned(), ..SignResult::default() }.encode_to_vec()
}

/// `SignArguments` to `SignResult`.
pub(super) fn sign(message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let arguments = SignArguments::decode(message).map_err(|_| Status::BadArgument)?;
    check_key(&arguments.private_key, &arguments.private_key_pem)?;
    let key = match arguments.private_key_pem.as_slice() {
        [] => PrivateKeyDer::Pkcs8(arguments.private_key.as_slice().into()),
        // What is no PEM is no key either.
        pem => PrivateKeyDer::from_pem_slice(pem).unwrap_or_else(|_| PrivateKeyDer::Pkcs8(Vec::new().into())),
    };
    let Some(hash) = Hash::named("sign", &arguments.hash_function)? else {
        return Ok(no_signature(&format!("{} is not supported.", arguments.hash_function)));
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
        pair.sign(rsa, &random, &arguments.text, &mut signature).map(|()| signature)
    } else {
        let pair =
            ecdsa.and_then(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, key.secret_der(), &random).ok());
        let pair = pair.ok_or_else(|| unsupported("sign", KEYS))?;
        pair.sign(&random, &arguments.text).map(|signature| signature.as_ref().to_vec())
    };
    let signature = signature.map_err(|_| Status::InternalFailure)?;
    Ok(SignResult { result: true, signature, error: String::new() }.encode_to_vec())
}
