"""What the image is made of, as SPDX 2.3: our programs, each library that they are linked to or that was compiled into them, by the Debian
package and version that it came from on the machine that built them, and each file with its digest.
"""

import hashlib
import json
import os
import re
import subprocess
from datetime import datetime, timezone

# Ours, and the one library that no package of this machine has: cmake/librdkafka builds it.
RDKAFKA = re.compile(r'/librdkafka/([0-9][^/+]*)')
TARGETS = ('stockade', 'stockaded')


def output(*command, **more):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **more).stdout


def commands(build_dir):
    """Archives that are linked, by the commands that link."""
    text = output('ninja', '-C', build_dir, '-t', 'commands', *TARGETS)
    return set(re.findall(r'(/\S+\.a)(?=\s|$)', text))


def headers(build_dir):
    """Headers of others that were compiled into our programs, as ninja noted them; those of tests in the same folder are not."""
    wanted = {line.strip() for line in output('ninja', '-C', build_dir, '-t', 'inputs', *TARGETS).splitlines()}
    found, taken = set(), False
    for line in output('ninja', '-C', build_dir, '-t', 'deps').splitlines():
        if line.startswith('    '):
            if taken and line.startswith('    /'):
                found.add(os.path.normpath(line.strip()))
        else:
            taken = line.split(': #deps')[0] in wanted
    return found


def owners(paths):
    """Path -> Debian package, of those that have one."""
    found = {}
    paths = sorted(paths)
    for start in range(0, len(paths), 500):
        batch = paths[start:start + 500]
        # Both names of a file where /lib is a link to /usr/lib.
        both = [name for path in batch for name in (path, path[4:] if path.startswith('/usr/lib') else '/usr' + path)]
        done = subprocess.run(['dpkg-query', '-S', *both], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        for line in done.stdout.splitlines():
            package, _, path = line.partition(': ')
            for name in (path, '/usr' + path, path[4:]):
                if name in batch:
                    found[name] = package.split(',')[0].split(':')[0]
    return found


def version_of(package):
    fields = '${Version}\t${source:Package}\t${source:Version}\t${Architecture}'
    version, source, source_version, architecture = output('dpkg-query', '-W', '-f', fields + '\n', package).splitlines()[0].split('\t')
    return {'version': version, 'source': source, 'source_version': source_version, 'architecture': architecture}


def digest(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest() if hasattr(hashlib, 'file_digest') else hashlib.sha256(file.read()).hexdigest()


def spdx_id(text):
    return 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', text)


def debian_package(name):
    about = version_of(name)
    locator = f"pkg:deb/debian/{name}@{about['version'].replace('+', '%2B').replace(':', '%3A')}?arch={about['architecture']}&distro=bookworm"
    return {'SPDXID': spdx_id('Package-' + name), 'name': name, 'versionInfo': about['version'], 'downloadLocation': 'NOASSERTION',
            'filesAnalyzed': False, 'licenseConcluded': 'NOASSERTION', 'licenseDeclared': 'NOASSERTION', 'copyrightText': 'NOASSERTION',
            'sourceInfo': f"built from {about['source']} {about['source_version']}; its notice is /usr/share/doc/{name}/copyright",
            'externalRefs': [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl', 'referenceLocator': locator}]}


def shared_libraries(root):
    """Libraries of the root, by the paths that they have here too."""
    return {'/' + os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
            if re.search(r'\.so(\.|$)', name)}


def agent_version(root):
    return output(os.path.join(root, 'usr/bin/stockade'), '--version').split()[-1]


def document(build_dir, root):
    archives, linked = commands(build_dir), {os.path.realpath(path) for path in shared_libraries(root)} | shared_libraries(root)
    compiled = headers(build_dir)
    owner = owners(archives | linked | compiled)
    how = {}
    for paths, word in ((compiled, 'compiled in'), (archives, 'linked in'), (linked, 'beside it')):
        for path in paths & owner.keys():
            how[owner[path]] = word
    ours = {'SPDXID': 'SPDXRef-Package-stockade', 'name': 'stockade', 'versionInfo': agent_version(root), 'downloadLocation': 'NOASSERTION',
            'filesAnalyzed': False, 'licenseConcluded': 'NOASSERTION', 'licenseDeclared': 'Apache-2.0', 'copyrightText': 'NOASSERTION'}
    packages = [ours] + [dict(debian_package(name), comment=word) for name, word in sorted(how.items())]
    for version in sorted({match.group(1) for path in archives | compiled for match in RDKAFKA.finditer(path)}):
        packages.append({'SPDXID': 'SPDXRef-Package-librdkafka', 'name': 'librdkafka', 'versionInfo': version, 'downloadLocation': 'NOASSERTION',
                         'filesAnalyzed': False, 'licenseConcluded': 'NOASSERTION', 'licenseDeclared': 'BSD-2-Clause',
                         'copyrightText': 'NOASSERTION', 'comment': 'linked in',
                         'sourceInfo': f'built from the Debian source package librdkafka {version} by cmake/librdkafka'})
    files = [{'SPDXID': spdx_id('File-' + os.path.relpath(path, root)), 'fileName': './' + os.path.relpath(path, root),
              'checksums': [{'algorithm': 'SHA256', 'checksumValue': digest(path)}], 'licenseConcluded': 'NOASSERTION',
              'copyrightText': 'NOASSERTION'} for path in sorted(all_files(root))]
    relations = [{'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES', 'relatedSpdxElement': ours['SPDXID']}]
    relations += [{'spdxElementId': ours['SPDXID'], 'relationshipType': 'DEPENDS_ON', 'relatedSpdxElement': package['SPDXID']} for package in packages[1:]]
    relations += [{'spdxElementId': ours['SPDXID'], 'relationshipType': 'CONTAINS', 'relatedSpdxElement': file['SPDXID']} for file in files]
    whole = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return {'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': 'stockade-image',
            'documentNamespace': f'https://stockade.dev/sbom/{whole}',
            'creationInfo': {'created': created(), 'creators': ['Tool: stockade-deploy-image-sbom']},
            'packages': packages, 'files': files, 'relationships': relations}


def created():
    """The time of the source, where a build that can be repeated says it."""
    epoch = os.environ.get('SOURCE_DATE_EPOCH')
    moment = datetime.fromtimestamp(int(epoch), timezone.utc) if epoch else datetime.now(timezone.utc)
    return moment.strftime('%Y-%m-%dT%H:%M:%SZ')


def all_files(root):
    return [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]


def debian_packages(sbom):
    return [package['name'] for package in sbom['packages'] if 'externalRefs' in package]


def write(sbom, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(sbom, file, indent=1)
        file.write('\n')
