"""Builds this package's wheel (PEP 517, PEP 427). It is a few files of Python, so a zip is all there is to it, and nothing has to be
fetched first. The same files give the same bytes."""
import base64
import hashlib
import io
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME, VERSION = "stockade", "0.1.0"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Run untrusted tools in Stockade's sandboxes
License: Apache-2.0
Requires-Python: >=3.9
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: stockade\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _files():
    info = f"{NAME}-{VERSION}.dist-info"
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted((HERE / NAME).iterdir()) if path.is_file()}
    files[f"{info}/METADATA"] = (METADATA + (HERE / "README.md").read_text()).encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    record = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    return files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in _files().items():
            entry = zipfile.ZipInfo(path)  # of 1980: the time of a build is nobody's business
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{VERSION}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz") as archive:
        for path in ["pyproject.toml", "backend.py", "README.md", *(f"{NAME}/{p.name}" for p in sorted((HERE / NAME).iterdir()) if p.is_file())]:
            archive.add(HERE / path, f"{base}/{path}")
        data = METADATA.encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return f"{base}.tar.gz"
