#!/usr/bin/python3
"""Makes ../data/dns_model.txt, the frozen code-length model of the DNS meter. ./dev train-dns-model [--check]

The inputs are named with their SHA-256 below, and counting and rounding are done in integers: the result is the same bytes on
every machine. README.md beside this file says what the inputs are and under which licences.
"""

import collections
import hashlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, '..', 'data', 'dns_model.txt')
VERSION = 1
LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789-_'
END, WORD = 'END', 'WORD'
INPUTS = {
    'domains': (os.path.join(HERE, 'opendns-top-domains.txt'), 'aba7a11689d0d46c927f012952af795c85d735b39831dea32236eb22b2fb4044'),
    'hosts': (os.path.join(HERE, 'host_words.txt'), None),
    'english': ('/usr/share/dict/american-english-small', 'a6e2bc32526c38fa082ffbdb527ad9999e41b0a712d06e8415244068454d4d55'),
}
# A word shorter than this is left to the letters, unless it is listed as a host's.
MIN_WORD = 4
# 12 letters and more are in the list as the words they are made of.
MAX_WORD = 16
# Of a use over the 1 that each symbol gets for being possible.
WEIGHT_SCALE = 4


def read(name):
    path, digest = INPUTS[name]
    with open(path, 'rb') as file:
        data = file.read()
    found = hashlib.sha256(data).hexdigest()
    if digest and found != digest:
        sys.exit(f'{path}: SHA-256 {found}, expected {digest}: the model would be another')
    return data.decode('utf-8')


def cost16(count, total):
    """Smallest k with 2**(-k/16) <= count/total: bits in sixteenths, rounded up, exactly."""
    k = 16 * max(0, (total // count).bit_length() - 1)
    while count ** 16 << k < total ** 16:
        k += 1
    return k


def labels_of_domains():
    for line in read('domains').split():
        label = line.lower().split('.')[0]
        if label and set(label) <= set(LETTERS):
            yield label


def vocabulary():
    """Host words with their weights, and plain words that may be parts of labels."""
    hosts = collections.Counter()
    for line in read('hosts').splitlines():
        if line and not line.startswith('#'):
            weight, *words = line.split()
            for word in words:
                hosts[word] = max(hosts[word], int(weight))
    plain = set()
    for word in read('english').split():
        word = word.lower()
        if word.endswith("'s"):
            word = word[:-2]
        if MIN_WORD <= len(word) <= MAX_WORD and set(word) <= set(LETTERS):
            plain.add(word)
    return hosts, plain


def split_label(label, words):
    """Longest words first, from the left; what is no word is single letters."""
    parts, at = [], 0
    while at < len(label):
        for length in range(min(MAX_WORD, len(label) - at), 1, -1):
            if label[at:at + length] in words:
                parts.append(label[at:at + length])
                at += length
                break
        else:
            parts.append(label[at])
            at += 1
    return parts


def count(labels, hosts, plain):
    words = plain | {word for word in hosts if len(word) > 1}
    uses = collections.Counter()
    after = {letter: collections.Counter() for letter in ['START', *LETTERS]}
    for label in labels:
        previous = 'START'
        for part in split_label(label, words):
            if len(part) > 1:
                uses[part] += 1
                after[previous][WORD] += 1
            else:
                after[previous][part] += 1
            previous = part[-1]
        after[previous][END] += 1
        # The same label by letters alone: names that no word list holds.
        for first, second in zip(label, label[1:]):
            after[first][second] += 1
    for word, weight in hosts.items():
        uses[word] += weight
        after['START'][WORD] += weight
        after[word[-1]][END] += weight
        # "cdn-3", "img12", "eu-west"
        after[word[-1]]['-'] += weight // 8
        for digit in '0123456789':
            after[word[-1]][digit] += weight // 40
    return uses, after


def kept_words(uses, hosts, plain):
    kept = {word: WEIGHT_SCALE * uses[word] for word in hosts}
    for word in plain:
        # Words that no domain used would cost all others a bit and the agent its memory.
        if uses[word]:
            kept.setdefault(word, WEIGHT_SCALE * uses[word])
    return kept


def model_text():
    hosts, plain = vocabulary()
    uses, after = count(list(labels_of_domains()), hosts, plain)
    lines = [f'stockade-dns-model {VERSION}', f'letters {LETTERS}']
    symbols = [*LETTERS, END, WORD]
    for letter in ['START', *LETTERS]:
        # One for each symbol: nothing is impossible. An empty label does not exist.
        weights = [1 + after[letter][symbol] for symbol in symbols]
        total = sum(weights)
        lines.append(f'after {letter} ' + ' '.join(str(cost16(weight, total)) for weight in weights))
    words = kept_words(uses, hosts, plain)
    total = sum(words.values())
    lines += [f'word {word} {cost16(words[word], total)}' for word in sorted(words)]
    text = '\n'.join(lines) + '\n'
    return text + 'end ' + hashlib.sha256(text.encode()).hexdigest() + '\n'


def main():
    text = model_text()
    if sys.argv[1:] == ['--check']:
        with open(MODEL, encoding='ascii') as file:
            if file.read() != text:
                sys.exit('dns_model.txt is not what its inputs make')
        return
    with open(MODEL, 'w', encoding='ascii') as file:
        file.write(text)
    print(f'{os.path.relpath(MODEL)}: {text.count(chr(10) + "word ")} words, {len(text)} bytes')


if __name__ == '__main__':
    main()
