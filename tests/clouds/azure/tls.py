"""A certificate authority of this process alone, and a certificate of loopback: the SDKs send no credential by http."""

from __future__ import annotations

import atexit
import functools
import ipaddress
import shutil
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@functools.cache
def authority() -> tuple[Path, ssl.SSLContext]:
    """Return the file with the authority's certificate, and the context of a server that it vouches for."""
    folder = Path(tempfile.mkdtemp(prefix="cg-azure-ca-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    key, owner = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = _certificate("cloudgpu tests", "cloudgpu tests", owner, owner, leaf=False)
    leaf = _certificate("127.0.0.1", "cloudgpu tests", key, owner, leaf=True)
    (folder / "ca.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both = folder / "server.pem"
    both.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
    both.chmod(0o600)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return folder / "ca.pem", context


def _certificate(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, owner: ec.EllipticCurvePrivateKey, *, leaf: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    usage = {"digital_signature": leaf, "key_cert_sign": not leaf, "crl_sign": not leaf}
    others = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=400))
        .add_extension(x509.BasicConstraints(ca=not leaf, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage, **others, decipher_only=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(owner.public_key()), critical=False)
    )
    if leaf:
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(owner, hashes.SHA256())
