/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* DNS messages as both sides read them: names, questions, records, and the canonical form that
 * alone may leave a sandbox. Nothing here allocates, calls or keeps a pointer; each loop has a
 * fixed bound, so that a BPF program over a copy of the packet can run the same lines.
 *
 * Whatever a resolver would pass on to the name server of the attacker's zone is in the question;
 * what it would not pass on (options, further questions, records, trailing bytes) is refused
 * rather than judged, so that the budget in bpf/wire/dns_budget.h counts every channel. */
#pragma once
#include "bpf/wire/load.h"

#define SK_DNS_HEAD_BYTES 12
#define SK_DNS_NAME_BYTES 255 /* RFC 1035 2.3.4, with length bytes and the root's */
#define SK_DNS_LABEL_BYTES 63
/* Head, name, type and class, and an OPT record with the largest harmless options. */
#define SK_DNS_QUERY_BYTES 512
/* Pointers may only go back, so 127 is more than a name of 255 bytes can need; a chain of more is
 * made to cost time. */
#define SK_DNS_HOPS 127
/* A byte of the name a step, or one pointer. */
#define SK_DNS_NAME_STEPS (SK_DNS_NAME_BYTES + SK_DNS_HOPS + 1)

/* Why bytes are no message, or a message is no canonical query. The text is what a person reads;
 * numbers are kept in records and never change. */
#define SK_DNS_FAULTS(X)                                                         \
    X(1, SHORT, "shorter than a header")                                         \
    X(2, LONG, "longer than any canonical query")                                \
    X(3, RESPONSE, "a response, not a query")                                    \
    X(4, OPCODE, "opcode other than query")                                      \
    X(5, FLAGS, "header bits that a query does not have")                        \
    X(6, QUESTIONS, "not exactly one question")                                  \
    X(7, ANSWERS, "answer records in a query")                                   \
    X(8, AUTHORITIES, "authority records in a query")                            \
    X(9, ADDITIONALS, "more than one additional record")                         \
    X(10, NAME_CUT, "name runs past the end")                                    \
    X(11, NAME_LONG, "name longer than 255 bytes")                               \
    X(12, LABEL_TYPE, "label of a type that was never defined")                  \
    X(13, POINTER, "compression pointer in a question")                          \
    X(14, POINTER_FORWARD, "compression pointer that does not go back")          \
    X(15, POINTER_CHAIN, "too many compression pointers")                        \
    X(16, CHARACTER, "character other than letter, digit, hyphen or underscore") \
    X(17, UPPER_CASE, "upper-case letters")                                      \
    X(18, QUESTION_CUT, "question runs past the end")                            \
    X(19, CLASS, "class other than IN")                                          \
    X(20, RECORD_CUT, "record runs past the end")                                \
    X(21, NOT_OPT, "additional record other than OPT")                           \
    X(22, OPT_FORM, "OPT record with a name, version or flags of its own")       \
    X(23, OPT_OPTION, "EDNS option that is not known to be harmless")            \
    X(24, OPT_CUT, "EDNS option runs past its record")                           \
    X(25, OPT_TWICE, "EDNS option given twice")                                  \
    X(26, TRAILING, "bytes after the message")                                   \
    X(27, FRAGMENT, "IP fragment")                                               \
    X(28, SEGMENTS, "several datagrams in one buffer (GSO)")                     \
    X(29, EXTENSION, "IPv6 extension header")                                    \
    X(30, UDP_LENGTH, "UDP length that is not the packet's")                     \
    X(31, PAGES, "in memory that its sender could change meanwhile")

enum sk_dns_fault {
    SK_DNS_OK = 0,
#define X(number, NAME, text) SK_DNS_FAULT_##NAME = number,
    SK_DNS_FAULTS(X)
#undef X
};
#define SK_DNS_FAULT_LAST 31

#define SK_DNS_TYPES(X) \
    X(1, A)             \
    X(2, NS)            \
    X(5, CNAME)         \
    X(6, SOA)           \
    X(10, NULL)         \
    X(12, PTR)          \
    X(15, MX)           \
    X(16, TXT)          \
    X(25, KEY)          \
    X(28, AAAA)         \
    X(33, SRV)          \
    X(35, NAPTR)        \
    X(41, OPT)          \
    X(64, SVCB)         \
    X(65, HTTPS)        \
    X(255, ANY)         \
    X(257, CAA)

enum sk_dns_type {
#define X(number, NAME) SK_DNS_TYPE_##NAME = number,
    SK_DNS_TYPES(X)
#undef X
};
#define SK_DNS_CLASS_IN 1

/* Bits of the header's second word. */
#define SK_DNS_QR 0x8000
#define SK_DNS_OPCODE 0x7800
#define SK_DNS_AA 0x0400
#define SK_DNS_TC 0x0200
#define SK_DNS_RD 0x0100
#define SK_DNS_RA 0x0080
#define SK_DNS_Z 0x0040
#define SK_DNS_AD 0x0020
#define SK_DNS_CD 0x0010
#define SK_DNS_RCODE 0x000f

/* EDNS options between a client and its resolver that the resolver keeps to itself. */
#define SK_DNS_OPTION_NSID 3       /* RFC 5001: empty in a query */
#define SK_DNS_OPTION_COOKIE 10    /* RFC 7873: 8 bytes, or 16 to 40 with the resolver's own */
#define SK_DNS_OPTION_KEEPALIVE 11 /* RFC 7828: empty in a query */
#define SK_DNS_OPTIONS_MAX 3       /* each of them once */

/* What a caller of sk_dns_check_query lets pass beyond the strict form. */
#define SK_DNS_ALLOW_UPPER 1u /* 0x20 case; it is then charged by a larger alphabet */

struct sk_dns_head {
    __u16 id;
    __u16 flags;
    __u16 questions;
    __u16 answers;
    __u16 authorities;
    __u16 additionals;
};

/* A name without compression, as on the wire: length byte, label, ..., 0. Case is kept. */
struct sk_dns_name {
    __u8 wire[SK_DNS_NAME_BYTES + 1];
    __u16 len;    /* bytes of wire, the root's zero included */
    __u16 labels; /* without the root */
    __u16 hops;   /* pointers followed */
    __u16 upper;  /* upper-case letters */
    __u16 odd;    /* bytes of labels that are no letter, digit, hyphen or underscore */
    __u16 pad[3];
};

struct sk_dns_question {
    struct sk_dns_name name;
    __u16 type;
    __u16 class_;
};

/* A record; its data stay in the message. */
struct sk_dns_record {
    struct sk_dns_name name;
    __u16 type;
    __u16 class_;
    __u32 ttl; /* as sent: RFC 2181 takes the top bit for zero, see sk_dns_ttl */
    __u32 data_at;
    __u32 data_len;
};

/* A canonical query: all that a budget needs to know. */
struct sk_dns_query {
    struct sk_dns_question question;
    __u16 id;
    __u16 has_opt;
};

SK_INLINE __u32 sk_dns_u16(const __u8 *at) { return ((__u32)at[0] << 8) | at[1]; }

SK_INLINE __u32 sk_dns_u32(const __u8 *at) { return (sk_dns_u16(at) << 16) | sk_dns_u16(at + 2); }

/* Seconds; a TTL with its top bit set counts as 0. */
SK_INLINE __u32 sk_dns_ttl(__u32 ttl) { return ttl & 0x80000000u ? 0 : ttl; }

SK_INLINE int sk_dns_is_upper(__u8 c) { return c >= 'A' && c <= 'Z'; }

SK_INLINE int sk_dns_is_plain(__u8 c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || sk_dns_is_upper(c);
}

/* Whether each of eight bytes is a lower-case letter, a digit, a hyphen or an underscore: what most names are made of.
 * A sum with what is missing to 0x80 has its top bit where the byte is greater than a bound. */
SK_INLINE int sk_dns_is_lower_word(__u64 word) {
    const __u64 ones = 0x0101010101010101ULL, tops = 0x80 * ones;
#define SK_ABOVE(c) (word + (0x7f - (c)) * ones)
    if (word & tops) return 0;
    const __u64 good = (SK_ABOVE('a' - 1) & ~SK_ABOVE('z')) | (SK_ABOVE('0' - 1) & ~SK_ABOVE('9')) |
                       (SK_ABOVE('-' - 1) & ~SK_ABOVE('-')) | (SK_ABOVE('_' - 1) & ~SK_ABOVE('_'));
#undef SK_ABOVE
    return (good & tops) == tops;
}

/* The same of a label's `len` characters (1..63), of which 64 bytes can be read. */
SK_INLINE int sk_dns_is_lower_label(const __u8 *label, __u32 len) {
    for (__u32 i = 0; i < 8; i++) {
        if (8 * i >= len) break;
        const __u32 left = len - 8 * i;
        const __u64 beyond = left < 8 ? ~(__u64)0 << (8 * left) : 0;
        if (!sk_dns_is_lower_word((sk_load8(label + 8 * i) & ~beyond) | (0x6161616161616161ULL & beyond))) return 0;
    }
    return 1;
}

SK_INLINE __u8 sk_dns_lower(__u8 c) { return sk_dns_is_upper(c) ? c + ('a' - 'A') : c; }

SK_INLINE int sk_dns_read_head(const __u8 *msg, __u32 len, struct sk_dns_head *head) {
    if (len < SK_DNS_HEAD_BYTES) return SK_DNS_FAULT_SHORT;
    head->id = sk_dns_u16(msg);
    head->flags = sk_dns_u16(msg + 2);
    head->questions = sk_dns_u16(msg + 4);
    head->answers = sk_dns_u16(msg + 6);
    head->authorities = sk_dns_u16(msg + 8);
    head->additionals = sk_dns_u16(msg + 10);
    return SK_DNS_OK;
}

/* Where the next byte of a name goes. */
SK_INLINE __u32 sk_dns_slot(__u32 len) {
#ifdef __bpf__
    /* clang knows that it is in bounds and would drop the mask; the verifier does not. */
    __asm__ volatile("" : "+r"(len));
#endif
    return len & SK_DNS_NAME_BYTES;
}

/* Where the reading of a name stands between two steps. */
struct sk_dns_walk {
    __u32 pos;    /* of the next byte */
    __u32 lowest; /* a pointer has to go to before here */
    __u32 end;    /* after the name where it began; 0 until the first pointer */
    __u32 left;   /* bytes of the label still to come */
};

/* What sk_dns_name_step says when it has not come to an end. */
#define SK_DNS_MORE (-1)

/* One byte of a name, or one pointer: SK_DNS_MORE, SK_DNS_OK at its end, or a fault. */
SK_INLINE int sk_dns_name_step(const __u8 *msg, __u32 len, struct sk_dns_walk *walk,
                               struct sk_dns_name *name) {
    if (walk->pos >= len) return SK_DNS_FAULT_NAME_CUT;
    const __u8 byte = msg[walk->pos];
    if (walk->left) {
        name->upper += sk_dns_is_upper(byte);
        name->odd += !sk_dns_is_plain(byte);
        name->wire[sk_dns_slot(name->len)] = byte;
        name->len++;
        walk->left--;
        walk->pos++;
        return SK_DNS_MORE;
    }
    if ((byte & 0xc0) == 0xc0) {
        if (walk->pos + 1 >= len) return SK_DNS_FAULT_NAME_CUT;
        const __u32 target = sk_dns_u16(msg + walk->pos) & 0x3fff;
        if (target >= walk->lowest) return SK_DNS_FAULT_POINTER_FORWARD;
        if (++name->hops > SK_DNS_HOPS) return SK_DNS_FAULT_POINTER_CHAIN;
        if (!walk->end) walk->end = walk->pos + 2;
        walk->lowest = walk->pos = target;
        return SK_DNS_MORE;
    }
    if (byte & 0xc0) return SK_DNS_FAULT_LABEL_TYPE;
    /* The label, its length byte and the root's zero still have to fit. */
    if (name->len + byte + (byte ? 2 : 1) > SK_DNS_NAME_BYTES) return SK_DNS_FAULT_NAME_LONG;
    name->wire[sk_dns_slot(name->len)] = byte;
    name->len++;
    walk->pos++;
    if (!byte) return SK_DNS_OK;
    name->labels++;
    walk->left = byte;
    return SK_DNS_MORE;
}

/* Reads the name at *at and moves *at behind it. */
SK_INLINE int sk_dns_read_name(const __u8 *msg, __u32 len, __u32 *at, struct sk_dns_name *name) {
    struct sk_dns_walk walk = {.pos = *at, .lowest = *at, .end = 0, .left = 0};
    name->len = name->labels = name->hops = name->upper = name->odd = 0;
    for (int i = 0; i < SK_DNS_NAME_STEPS; i++) {
        const int step = sk_dns_name_step(msg, len, &walk, name);
        if (step == SK_DNS_MORE) continue;
        if (step == SK_DNS_OK) *at = walk.end ? walk.end : walk.pos;
        return step;
    }
    return SK_DNS_FAULT_POINTER_CHAIN;
}

SK_INLINE int sk_dns_read_question(const __u8 *msg, __u32 len, __u32 *at, struct sk_dns_question *question) {
    const int fault = sk_dns_read_name(msg, len, at, &question->name);
    if (fault) return fault;
    if (len < 4 || *at > len - 4) return SK_DNS_FAULT_QUESTION_CUT;
    question->type = sk_dns_u16(msg + *at);
    question->class_ = sk_dns_u16(msg + *at + 2);
    *at += 4;
    return SK_DNS_OK;
}

/* Reads the record at *at and moves *at behind its data. */
SK_INLINE int sk_dns_read_record(const __u8 *msg, __u32 len, __u32 *at, struct sk_dns_record *record) {
    const int fault = sk_dns_read_name(msg, len, at, &record->name);
    if (fault) return fault;
    if (len < 10 || *at > len - 10) return SK_DNS_FAULT_RECORD_CUT;
    record->type = sk_dns_u16(msg + *at);
    record->class_ = sk_dns_u16(msg + *at + 2);
    record->ttl = sk_dns_u32(msg + *at + 4);
    record->data_len = sk_dns_u16(msg + *at + 8);
    record->data_at = *at + 10;
    if (record->data_len > len - record->data_at) return SK_DNS_FAULT_RECORD_CUT;
    *at = record->data_at + record->data_len;
    return SK_DNS_OK;
}

SK_INLINE int sk_dns_is_harmless_option(__u32 code, __u32 len) {
    switch (code) {
        case SK_DNS_OPTION_NSID:
        case SK_DNS_OPTION_KEEPALIVE:
            return len == 0;
        case SK_DNS_OPTION_COOKIE:
            return len == 8 || (len >= 16 && len <= 40);
        default:
            return 0;
    }
}

/* The OPT record at *at: named by the root, version 0, no flag but DO, known options once each. */
SK_INLINE int sk_dns_check_opt(const __u8 *msg, __u32 len, __u32 *at) {
    if (len < 11 || *at > len - 11) return SK_DNS_FAULT_RECORD_CUT;
    if (msg[*at]) return SK_DNS_FAULT_OPT_FORM;
    if (sk_dns_u16(msg + *at + 1) != SK_DNS_TYPE_OPT) return SK_DNS_FAULT_NOT_OPT;
    /* Extended rcode and version are zero in a query; of the flags only DO (0x8000) is defined. */
    if (sk_dns_u32(msg + *at + 5) & ~0x8000u) return SK_DNS_FAULT_OPT_FORM;
    const __u32 data_len = sk_dns_u16(msg + *at + 9);
    *at += 11;
    if (data_len > len - *at) return SK_DNS_FAULT_RECORD_CUT;
    const __u32 end = *at + data_len;
    __u32 seen = 0;
    for (int i = 0; i <= SK_DNS_OPTIONS_MAX && *at < end; i++) {
        /* The second cannot be: it is how the verifier learns of a bound. */
        if (end - *at < 4 || *at > SK_DNS_QUERY_BYTES) return SK_DNS_FAULT_OPT_CUT;
        const __u32 code = sk_dns_u16(msg + *at), option_len = sk_dns_u16(msg + *at + 2);
        if (option_len > end - *at - 4) return SK_DNS_FAULT_OPT_CUT;
        if (!sk_dns_is_harmless_option(code, option_len)) return SK_DNS_FAULT_OPT_OPTION;
        if (seen & (1u << code)) return SK_DNS_FAULT_OPT_TWICE;
        seen |= 1u << code;
        *at += 4 + option_len;
    }
    return SK_DNS_OK;
}

SK_INLINE int sk_dns_check_query_head(const struct sk_dns_head *head) {
    if (head->flags & SK_DNS_QR) return SK_DNS_FAULT_RESPONSE;
    if (head->flags & SK_DNS_OPCODE) return SK_DNS_FAULT_OPCODE;
    if (head->flags & (SK_DNS_AA | SK_DNS_TC | SK_DNS_RA | SK_DNS_Z | SK_DNS_RCODE))
        return SK_DNS_FAULT_FLAGS;
    if (head->questions != 1) return SK_DNS_FAULT_QUESTIONS;
    if (head->answers) return SK_DNS_FAULT_ANSWERS;
    if (head->authorities) return SK_DNS_FAULT_AUTHORITIES;
    if (head->additionals > 1) return SK_DNS_FAULT_ADDITIONALS;
    return SK_DNS_OK;
}

/* The rest of a canonical query, once its name has been read (without a fault) up to `at`. Apart, for
 * a program that walks the name by bpf_loop: a plain loop over sk_dns_name_step is more than the
 * verifier goes through (a million instructions). */
SK_INLINE int sk_dns_check_query_rest(const __u8 *msg, __u32 len, __u32 at, const struct sk_dns_head *head,
                                      __u32 allow, struct sk_dns_query *query) {
    struct sk_dns_question *question = &query->question;
    if (len < 4 || at > len - 4) return SK_DNS_FAULT_QUESTION_CUT;
    question->type = sk_dns_u16(msg + at);
    question->class_ = sk_dns_u16(msg + at + 2);
    at += 4;
    if (question->name.odd) return SK_DNS_FAULT_CHARACTER;
    if (question->name.upper && !(allow & SK_DNS_ALLOW_UPPER)) return SK_DNS_FAULT_UPPER_CASE;
    if (question->class_ != SK_DNS_CLASS_IN) return SK_DNS_FAULT_CLASS;
    query->id = head->id;
    query->has_opt = head->additionals;
    const int fault = head->additionals ? sk_dns_check_opt(msg, len, &at) : SK_DNS_OK;
    if (fault) return fault;
    return at == len ? SK_DNS_OK : SK_DNS_FAULT_TRAILING;
}

/* Whether these bytes are a canonical query and nothing else; SK_DNS_OK, or the first fault. After
 * SK_DNS_OK and SK_DNS_FAULT_CHARACTER the question is whole. */
SK_INLINE int sk_dns_check_query(const __u8 *msg, __u32 len, __u32 allow, struct sk_dns_query *query) {
    struct sk_dns_head head;
    __u32 at = SK_DNS_HEAD_BYTES;
    if (len > SK_DNS_QUERY_BYTES) return SK_DNS_FAULT_LONG;
    int fault = sk_dns_read_head(msg, len, &head);
    if (!fault) fault = sk_dns_check_query_head(&head);
    if (fault) return fault;
    fault = sk_dns_read_name(msg, len, &at, &query->question.name);
    if (query->question.name.hops || fault == SK_DNS_FAULT_POINTER_FORWARD) return SK_DNS_FAULT_POINTER;
    if (fault) return fault;
    return sk_dns_check_query_rest(msg, len, at, &head, allow, query);
}
