"""An image for the test pods, made here: no registry is asked. busybox, and the host's bash with its libraries; one layer."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

NAME = 'localhost/stockade-test:1'
APPLETS = ('sh', 'sleep', 'cat', 'echo', 'true', 'touch', 'test', 'mknod', 'chmod', 'ping', 'timeout')


def libraries(program):
    """What the loader would load for it, itself included."""
    text = subprocess.run(['ldd', program], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(set(re.findall(r'(/[^ ]+) \(0x', text)))


def layer():
    busybox, bash = shutil.which('busybox'), os.path.realpath(shutil.which('bash'))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode='w') as tar:
        seen = set()

        def parents(name):
            for depth in range(1, name.count('/') + 1):
                folder = '/'.join(name.split('/')[:depth])
                if folder and folder not in seen:
                    seen.add(folder)
                    info = tarfile.TarInfo(folder)
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(info)

        def file(source, name):
            parents(name)
            with open(source, 'rb') as stream:
                data = stream.read()
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))

        file(busybox, 'bin/busybox')
        file(bash, 'bin/bash')
        for library in libraries(bash):
            file(os.path.realpath(library), library.lstrip('/'))
        for applet in APPLETS:
            info = tarfile.TarInfo('bin/' + applet)
            info.type, info.linkname = tarfile.SYMTYPE, 'busybox'
            tar.addfile(info)
        for folder in ('out/x', 'tmp/x', 'proc/x'):
            parents(folder)
    return raw.getvalue()


def write(path):
    """An OCI archive, as `ctr images import` takes it."""
    blobs, tar_layer = {}, layer()

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {'mediaType': kind, 'digest': 'sha256:' + digest, 'size': len(data)}

    first = blob(tar_layer, 'application/vnd.oci.image.layer.v1.tar')
    config = blob(json.dumps({'architecture': 'amd64' if os.uname().machine == 'x86_64' else 'arm64', 'os': 'linux',
                              'config': {'Entrypoint': ['/bin/sleep', '1000000'], 'Env': ['PATH=/bin']},
                              'rootfs': {'type': 'layers', 'diff_ids': [first['digest']]}}).encode(), 'application/vnd.oci.image.config.v1+json')
    manifest = blob(json.dumps({'schemaVersion': 2, 'mediaType': 'application/vnd.oci.image.manifest.v1+json', 'config': config,
                                'layers': [first]}).encode(), 'application/vnd.oci.image.manifest.v1+json')
    manifest['annotations'] = {'io.containerd.image.name': NAME, 'org.opencontainers.image.ref.name': '1'}
    files = {'oci-layout': b'{"imageLayoutVersion": "1.0.0"}',
             'index.json': json.dumps({'schemaVersion': 2, 'mediaType': 'application/vnd.oci.image.index.v1+json',
                                       'manifests': [manifest]}).encode()}
    files.update({'blobs/sha256/' + digest: data for digest, data in blobs.items()})
    with tarfile.open(path, 'w') as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
