/* Lines of step JSONL to fixed rows. What `columns_native.py` asks for, and nothing else.
 *
 * A line is read only if it is strictly JSON and its fields hold what a step log usually holds; every other line is
 * marked refused, and Python reads it. So this file decides nothing about odd input, and reads nothing twice.
 *
 * Offsets are bytes from the start of the row's line; -1: there is none. Times are as the log has them. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { OTHER, CALL, RESULT, PARSE_ERROR, MESSAGE, END, VOIDED, REFUSED = -2 };
enum { NONE, NUL, FALSE_, TRUE_, NUMBER, TEXT, OBJECT, ARRAY };
enum { STEP, TYPE, TOOL, ARGS, TASK, ERR, GROUP, RES, TOKENS, REWARD, CONTENT, SUCCESS, TASK_ID, META, GROUP_ID, TIME, LATENCY, PROMPT_ID,
       ID, DURATION, STOP, TOTAL, TERMINATION, FIELDS };
#define DEPTH 64
#define KEYS 32

typedef struct { int32_t at, len; } Span;
typedef struct {
    uint64_t eh, h, tool_hash;
    double step, time, latency, tokens, reward, total;
    int64_t line;
    Span id, tool, err, task, group, stop;
    int32_t len;
    int8_t kind, told, success, filler;
} Row;

typedef struct { const uint8_t *s, *e; uint8_t kind, escaped; } Val; /* of a text the bytes between its quotes */
typedef struct { uint8_t name[16]; int len, field; } Key; /* with the quote behind it; len 0: none yet */
typedef struct { const uint8_t *p, *end; Key *keys; int odd; } Scan;
/* keys (KEYS): those of the line before, which this one likely has again; odd: a nested number that Python would write otherwise */

#define LONGEST 18
static const char *NAMES[FIELDS] = { /* of the enum's fields, by length */
    "step", "type", "tool", "args", "task", "error", "group", "result", "tokens", "reward", "content", "success", "task_id", "metadata",
    "group_id", "timestamp", "latency_s", "prompt_id", "episode_id", "duration_s", "stop_reason", "total_tokens", "termination_reason" };
static const int8_t FIRST[LONGEST + 2] = { /* place of the first name of this length */
    0, 0, 0, 0, STEP, ERR, RES, CONTENT, META, TIME, ID, STOP, TOTAL, TERMINATION, TERMINATION, TERMINATION, TERMINATION, TERMINATION, TERMINATION, FIELDS };

/* ---- hashing: 8 bytes at a time, folded 128-bit products */

static uint64_t word(const uint8_t *p) { uint64_t w; memcpy(&w, p, 8); return w; }

static uint64_t fold(uint64_t a, uint64_t b) {
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

uint64_t hash_bytes(const uint8_t *p, int64_t n, uint64_t seed) {
    uint64_t h = seed ^ (0x9E3779B97F4A7C15ull * (uint64_t)(n + 1));
    for (; n >= 16; p += 16, n -= 16) h = fold(word(p) ^ 0xA0761D6478BD642Full, word(p + 8) ^ h);
    uint8_t rest[16] = {0};
    memcpy(rest, p, (size_t)n);
    h = fold(word(rest) ^ 0xE7037ED1A0B428DBull, word(rest + 8) ^ h);
    return fold(h ^ 0x8EBC6AF09C88C6E3ull, 0x589965CC75374CC3ull);
}

/* ---- reading JSON strictly; 0: refused */

static const uint8_t *plain(const uint8_t *p, const uint8_t *end) { /* the first byte that needs a look: quote, backslash, control, above 127 */
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), low = _mm_set1_epi8(32);
    for (; p + 16 <= end; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p); /* signed: bytes above 127 are below 32, too */
        int hit = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)), _mm_cmplt_epi8(x, low)));
        if (hit) return p + __builtin_ctz((unsigned)hit);
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && *p >= 32 && *p < 128) p++;
    return p;
}

static int utf8(const uint8_t *p, const uint8_t *end) { /* bytes of the character at p; 0 if it is none */
    int n = *p >= 0xF0 ? 4 : *p >= 0xE0 ? 3 : 2;
    if (*p < 0xC2 || *p > 0xF4 || end - p < n) return 0;
    for (int i = 1; i < n; i++) if ((p[i] & 0xC0) != 0x80) return 0;
    if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) || (*p == 0xF0 && p[1] < 0x90) || (*p == 0xF4 && p[1] > 0x8F)) return 0;
    return n;
}

static int hex4(const uint8_t *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i] | 32, d = p[i] >= '0' && p[i] <= '9' ? p[i] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static int unescaped(const uint8_t **at, const uint8_t *end, uint8_t *out) { /* one escape to UTF-8; bytes written, 0: refused */
    const uint8_t *p = *at;
    if (end - p < 2) return 0;
    const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t", *found = p[1] ? strchr(from, p[1]) : 0;
    if (found) { *out = (uint8_t)to[found - from]; *at = p + 2; return 1; }
    if (p[1] != 'u' || end - p < 6) return 0;
    int c = hex4(p + 2);
    p += 6;
    if (c < 0 || (c >= 0xDC00 && c < 0xE000)) return 0;
    if (c >= 0xD800 && c < 0xDC00) {
        int d = end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2) : -1;
        if (d < 0xDC00 || d > 0xDFFF) return 0; /* a lone surrogate: Python reads it */
        c = 0x10000 + ((c - 0xD800) << 10) + (d - 0xDC00);
        p += 6;
    }
    *at = p;
    if (c < 0x80) { out[0] = (uint8_t)c; return 1; }
    if (c < 0x800) { out[0] = (uint8_t)(0xC0 | c >> 6); out[1] = (uint8_t)(0x80 | (c & 63)); return 2; }
    if (c < 0x10000) { out[0] = (uint8_t)(0xE0 | c >> 12); out[1] = (uint8_t)(0x80 | (c >> 6 & 63)); out[2] = (uint8_t)(0x80 | (c & 63)); return 3; }
    out[0] = (uint8_t)(0xF0 | c >> 18); out[1] = (uint8_t)(0x80 | (c >> 12 & 63)); out[2] = (uint8_t)(0x80 | (c >> 6 & 63)); out[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

static void space(Scan *s) { while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n')) s->p++; }

static int text(Scan *s, Val *v) { /* at the opening quote */
    v->kind = TEXT; v->escaped = 0; v->s = ++s->p;
    uint8_t sink[4];
    for (;;) {
        const uint8_t *p = s->p = plain(s->p, s->end);
        if (p >= s->end || *p < 32) return 0;
        if (*p == '"') { v->e = p; s->p++; return 1; }
        if (*p == '\\') { v->escaped = 1; if (!unescaped(&s->p, s->end, sink)) return 0; }
        else { int n = utf8(p, s->end); if (!n) return 0; s->p += n; }
    }
}

static int digits(Scan *s) {
    const uint8_t *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return s->p > from;
}

static int number(Scan *s, Val *v, int nested) {
    int odd = 0;
    v->kind = NUMBER; v->s = s->p;
    if (*s->p == '-') s->p++;
    const uint8_t *first = s->p;
    if (!digits(s) || (*first == '0' && s->p - first > 1)) return 0;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!digits(s)) return 0;
        odd = (s->p[-1] == '0' && s->p[-2] != '.') || s->p - first > 19; /* no float needs more */
    }
    if (s->p < s->end && (*s->p | 32) == 'e') {
        s->p++;
        odd = 1;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        if (!digits(s)) return 0;
    }
    v->e = s->p;
    s->odd |= nested & (odd | (first > v->s && s->p - first == 1 && *first == '0'));
    return 1;
}

static inline __attribute__((always_inline)) int literal(Scan *s, Val *v, const char *said, size_t n, uint8_t kind) {
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, said, n)) return 0; /* inline, so that n is known */
    v->kind = kind; v->s = s->p; s->p += n; v->e = s->p;
    return 1;
}

static int value(Scan *s, Val *v, int depth, Val *into);

static int field_of(const uint8_t *p, size_t n) {
    if (n > LONGEST) return -1;
    for (int i = FIRST[n]; i < FIRST[n + 1]; i++) if (!memcmp(NAMES[i], p, n)) return i;
    return -1;
}

static int same_key(const uint8_t *p, const Key *k) {
#ifdef __SSE2__
    __m128i x = _mm_loadu_si128((const __m128i *)p), y = _mm_loadu_si128((const __m128i *)k->name);
    unsigned mask = (1u << k->len) - 1;
    return ((unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, y)) & mask) == mask;
#else
    return !memcmp(p, k->name, (size_t)k->len);
#endif
}

static int key_of(Scan *s, int at, int *field) { /* a key of the step itself; field -1: none of ours */
    Key *k = at < KEYS ? s->keys + at : 0;
    Val key;
    if (k && k->len && s->end - s->p > 16 && same_key(s->p + 1, k)) {
        s->p += 1 + k->len;
        *field = k->field;
        return 1;
    }
    if (!text(s, &key) || key.escaped) return 0;
    size_t n = (size_t)(key.e - key.s);
    *field = field_of(key.s, n);
    if (k && n && n < 16) { memcpy(k->name, key.s, n + 1); k->len = (int)n + 1; k->field = *field; }
    return 1;
}

static int members(Scan *s, int depth, Val *into) { /* after `{`; into (FIELDS) gets those we know */
    space(s);
    if (s->p < s->end && *s->p == '}') { s->p++; return 1; }
    for (int at = 0;; at++) {
        Val v, *to = &v;
        space(s);
        if (s->p >= s->end || *s->p != '"') return 0;
        if (into) {
            int field;
            if (!key_of(s, at, &field)) return 0;
            if (field >= 0) { to = into + field; if (to->kind != NONE) return 0; } /* twice the same */
        } else if (!text(s, &v)) return 0;
        space(s);
        if (s->p >= s->end || *s->p++ != ':') return 0;
        if (!value(s, to, depth, 0)) return 0;
        space(s);
        if (s->p >= s->end) return 0;
        if (*s->p == '}') { s->p++; return 1; }
        if (*s->p++ != ',') return 0;
    }
}

static int value(Scan *s, Val *v, int depth, Val *into) {
    space(s);
    if (s->p >= s->end || depth > DEPTH) return 0;
    switch (*s->p) {
    case '"': return text(s, v);
    case 'n': return literal(s, v, "null", 4, NUL);
    case 't': return literal(s, v, "true", 4, TRUE_);
    case 'f': return literal(s, v, "false", 5, FALSE_);
    case '{':
        v->s = s->p++;
        if (!members(s, depth + 1, into)) return 0;
        v->kind = OBJECT; v->e = s->p;
        return 1;
    case '[': {
        Val one;
        v->s = s->p++;
        space(s);
        if (s->p < s->end && *s->p == ']') s->p++;
        else for (;;) {
            if (!value(s, &one, depth + 1, 0)) return 0;
            space(s);
            if (s->p >= s->end) return 0;
            if (*s->p == ']') { s->p++; break; }
            if (*s->p++ != ',') return 0;
        }
        v->kind = ARRAY; v->e = s->p;
        return 1;
    }
    default: return *s->p == '-' || (*s->p >= '0' && *s->p <= '9') ? number(s, v, depth > 1) : 0;
    }
}

/* ---- what a value says */

static uint64_t hash_text(const Val *v, uint8_t *scratch) {
    if (!v->escaped) return hash_bytes(v->s, v->e - v->s, 1);
    uint8_t *out = scratch;
    for (const uint8_t *p = v->s; p < v->e;) {
        if (*p == '\\') out += unescaped(&p, v->e, out);
        else *out++ = *p++;
    }
    return hash_bytes(scratch, out - scratch, 1);
}

static uint64_t hash_value(const Val *v, uint8_t *scratch) { /* without the space between, texts as they read */
    uint8_t *out = scratch;
    int inside = 0;
    for (const uint8_t *p = v->kind == TEXT ? v->s - 1 : v->s, *end = v->kind == TEXT ? v->e + 1 : v->e; p < end;) {
        if (*p == '"') { inside = !inside; *out++ = 0xFF; p++; } /* no byte of UTF-8 */
        else if (inside && *p == '\\') out += unescaped(&p, end, out);
        else if (inside || *p > 32) *out++ = *p++;
        else p++;
    }
    return hash_bytes(scratch, out - scratch, 2);
}

static double number_of(const Val *v) {
    static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const uint8_t *p = v->s;
    int minus = *p == '-', after = 0, seen = 0;
    uint64_t m = 0;
    for (p += minus; p < v->e && (*p | 32) != 'e'; p++) {
        if (*p == '.') { seen = 1; continue; }
        if (m >= 900719925474099ull) break; /* the next digit may not fit in 53 bits */
        m = m * 10 + (uint64_t)(*p - '0');
        after += seen;
    }
    if (p == v->e) return (minus ? -1.0 : 1.0) * ((double)m / ten[after > 22 ? 22 : after]); /* one rounding: exact as strtod */
    char copy[64];
    size_t n = (size_t)(v->e - v->s);
    if (n >= sizeof copy) return NAN;
    memcpy(copy, v->s, n);
    copy[n] = 0;
    return strtod(copy, 0);
}

static int two(const uint8_t *p) { return p[0] >= '0' && p[0] <= '9' && p[1] >= '0' && p[1] <= '9' ? (p[0] - '0') * 10 + p[1] - '0' : -1000; }

static int iso(const Val *v, double *out) { /* YYYY-MM-DD[T ]HH:MM:SS[.f][Z|+HH:MM]; 0: another form, or none */
    const uint8_t *p = v->s;
    long n = (long)(v->e - v->s);
    if (n < 19 || v->escaped || p[4] != '-' || p[7] != '-' || (p[10] != 'T' && p[10] != ' ') || p[13] != ':' || p[16] != ':') return 0;
    int y = two(p) * 100 + two(p + 2), mo = two(p + 5), d = two(p + 8), h = two(p + 11), mi = two(p + 14), s = two(p + 17);
    if (y < 1970 || mo < 1 || mo > 12 || d < 1 || d > 28 + (mo != 2 ? 2 : 0) || h < 0 || h > 23 || mi < 0 || mi > 59 || s < 0 || s > 59) return 0;
    const uint8_t *q = p + 19;
    double part = 0, unit = 1;
    if (q < v->e && *q == '.') {
        const uint8_t *from = ++q;
        for (; q < v->e && *q >= '0' && *q <= '9'; q++) { part = part * 10 + (*q - '0'); unit *= 10; }
        if (q - from != 3 && q - from != 6) return 0;
    }
    int zone = 0;
    if (q < v->e && *q == 'Z') q++;
    else if (q < v->e && (*q == '+' || *q == '-')) {
        if (v->e - q != 6 || q[3] != ':' || two(q + 1) < 0 || two(q + 1) > 23 || two(q + 4) < 0 || two(q + 4) > 59) return 0;
        zone = (*q == '-' ? -1 : 1) * (two(q + 1) * 60 + two(q + 4));
        q += 6;
    }
    if (q != v->e) return 0;
    int64_t yy = y - (mo <= 2), era = yy / 400, yoe = yy - era * 400, doy = (153 * (mo + (mo > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int64_t days = era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468; /* Hinnant, days_from_civil */
    *out = (double)(days * 86400 + h * 3600 + mi * 60 + s - zone * 60) + part / unit;
    return 1;
}

/* ---- a row */

static int known(const Val *v) { return v->kind != NONE && v->kind != NUL; }

static int numeric(const Val *v, double *out) { /* nan where there is none; 0: not a number */
    *out = NAN;
    if (!known(v)) return 1;
    if (v->kind != NUMBER) return 0;
    *out = number_of(v);
    return isfinite(*out) != 0;
}

static int whole(const Val *v, double *out) { /* nan for a fraction, and from 2^53 on */
    if (!numeric(v, out)) return 0;
    if (!(*out == floor(*out) && fabs(*out) < 9007199254740992.0)) *out = NAN;
    return 1;
}

static int label(const Val *v, const uint8_t *line, Span *out) { /* a name or a whole number as it stands; none where null */
    out->at = -1; out->len = 0;
    if (!known(v)) return 1;
    if (v->kind == NUMBER) { for (const uint8_t *p = v->s; p < v->e; p++) if (*p < '0' || *p > '9') return 0; }
    else if (v->kind != TEXT || v->escaped) return 0;
    out->at = (int32_t)(v->s - line); out->len = (int32_t)(v->e - v->s);
    return 1;
}

static int three(const uint8_t *p) { return (p[0] & 31) << 10 | (p[1] & 31) << 5 | (p[2] & 31); } /* case aside; others may share it */

static int ends_in(const uint8_t *from, const uint8_t *p, const char *word, long n) { /* the letters up to p */
    if (p - from + 1 < n) return 0;
    for (long i = 0; i < n; i++) if ((p[i + 1 - n] | 32) != word[i]) return 0;
    return 1;
}

static int may_be_error(const Val *v, const uint8_t *starts) { /* never 0 where tool_errors.ERROR_START finds one; see its STARTS_WITH */
    const uint8_t *p = v->s, *e = v->e;
    while (p < e && (*p <= 32 || *p == '[' || *p == '(' || *p == '<' || *p == '*' || *p > 127)) p++;
    if (p >= e) return 0;
    if (*p == '\\' || *p == ':' || (*p >= '0' && *p <= '9') || (e - p > 2 && starts[three(p)])) return 1;
    for (const uint8_t *from = p; p < e; p++) { /* the first word: is it a class of errors, or does a colon follow? */
        int c = *p | 32;
        if ((c >= 'a' && c <= 'z') || (*p >= '0' && *p <= '9') || *p == '_' || *p == '.' || *p == '/' || *p == '-') {
            if ((c == 'r' && ends_in(from, p, "error", 5)) || (c == 'n' && ends_in(from, p, "exception", 9))) return 1;
            continue;
        }
        return *p == ':' || *p == '\\';
    }
    return 0;
}

static int message_kind(const Val *v) { /* VOIDED: nothing to read */
    if (!known(v)) return VOIDED;
    if (v->kind != TEXT) return REFUSED;
    const uint8_t *p = v->s;
    while (p < v->e && *p == ' ') p++;
    if (p == v->e) return VOIDED;
    if (*p == '\\') return p[1] == '"' || p[1] == '\\' || p[1] == '/' ? MESSAGE : REFUSED;
    return *p < 127 || (*p >= 0xC3 && *p != 0xE1 && *p != 0xE2 && *p != 0xE3) ? MESSAGE : REFUSED;
}

static int ends(const Val *f, const Val *meta, const uint8_t *line, Row *r) {
    static const int task[] = {TASK_ID, TASK, PROMPT_ID}, group[] = {GROUP_ID, GROUP}, stop[] = {STOP, TERMINATION};
    const int *of[] = {task, group, stop}, n[] = {3, 2, 2};
    Span *to[] = {&r->task, &r->group, &r->stop};
    for (int what = 0; what < 3; what++)
        for (int i = 0; i < n[what]; i++) { /* the step's own field hides its metadata's, also where it is null */
            const Val *v = f[of[what][i]].kind != NONE ? f + of[what][i] : meta + of[what][i];
            if (!known(v)) continue;
            if (!label(v, line, to[what])) return 0;
            break;
        }
    const Val *s = f + SUCCESS;
    if (known(s) && s->kind != TRUE_ && s->kind != FALSE_) return 0;
    r->success = s->kind == TRUE_ ? 1 : s->kind == FALSE_ ? 0 : -1;
    return numeric(f + REWARD, &r->reward) && whole(f + TOTAL, &r->total);
}

static int result(const Val *f, const uint8_t *line, Row *r, uint8_t *scratch, const uint8_t *starts) {
    const Val *v = known(f + RES) ? f + RES : f + CONTENT, *err = f + ERR;
    if (!known(v)) r->h = hash_bytes(line, 0, 1);
    else if (v->kind == TEXT) r->h = hash_text(v, scratch);
    else if (v->kind == ARRAY) return 0; /* parts of a message, perhaps */
    else r->h = hash_value(v, scratch);
    if (err->kind == TEXT && err->e > err->s) {
        r->told = 1; r->err.at = (int32_t)(err->s - line); r->err.len = (int32_t)(err->e - err->s);
    } else if (known(err) && err->kind != FALSE_ && err->kind != TEXT) return 0;
    else if (v->kind == TEXT && may_be_error(v, starts)) { r->err.at = (int32_t)(v->s - line); r->err.len = (int32_t)(v->e - v->s); }
    const Val *l = known(f + LATENCY) ? f + LATENCY : f + DURATION;
    return numeric(l, &r->latency);
}

static int row(const Val *f, const Val *meta, const uint8_t *line, Row *r, uint8_t *scratch, const uint8_t *starts) {
    static const struct { const char *name; size_t len; int kind; } KINDS[] = {
        {"tool_call", 9, CALL}, {"tool_result", 11, RESULT}, {"tool_parse_error", 16, PARSE_ERROR}, {"assistant_message", 17, MESSAGE}, {"episode_end", 11, END}};
    const Val *type = f + TYPE;
    if (type->kind != TEXT || type->escaped || !known(f + ID) || !label(f + ID, line, &r->id) || !label(f + TOOL, line, &r->tool)) return 0;
    r->kind = OTHER;
    for (int i = 0; i < 5; i++)
        if (KINDS[i].len == (size_t)(type->e - type->s) && !memcmp(KINDS[i].name, type->s, KINDS[i].len)) r->kind = (int8_t)KINDS[i].kind;
    if (r->kind == MESSAGE) r->kind = (int8_t)message_kind(f + CONTENT);
    if (r->kind == REFUSED || r->kind == PARSE_ERROR) return 0;
    r->eh = hash_bytes(line + r->id.at, r->id.len, 0);
    if (r->tool.len) r->tool_hash = hash_bytes(line + r->tool.at, r->tool.len, 0);
    if (!whole(f + STEP, &r->step) || !whole(f + TOKENS, &r->tokens)) return 0;
    if (f[TIME].kind == TEXT ? !iso(f + TIME, &r->time) : !numeric(f + TIME, &r->time)) return 0;
    if (r->kind == CALL) r->h = known(f + ARGS) ? hash_value(f + ARGS, scratch) : hash_bytes(line, 0, 1);
    if (r->kind == RESULT) return result(f, line, r, scratch, starts);
    return r->kind == END ? ends(f, meta, line, r) : 1;
}

static int line_of(const uint8_t *p, const uint8_t *end, Row *r, Key *keys, uint8_t *scratch, const uint8_t *starts) {
    Val f[FIELDS], meta[FIELDS], whole;
    for (int i = 0; i < FIELDS; i++) f[i].kind = meta[i].kind = NONE;
    Scan s = {p, end, keys, 0};
    if (!value(&s, &whole, 0, f) || whole.kind != OBJECT) return 0;
    space(&s);
    if (s.p != end) return 0;
    if (f[META].kind == OBJECT && f[TYPE].kind == TEXT && f[TYPE].e - f[TYPE].s == 11) { /* an end's, perhaps */
        Key none[KEYS] = {{{0}, 0, 0}};
        Scan inner = {f[META].s, f[META].e, none, 0};
        if (!value(&inner, &whole, 1, meta)) return 0;
    }
    if (f[TYPE].kind != TEXT) return 0;
    const Val *hashed = f + (f[TYPE].e - f[TYPE].s == 9 ? ARGS : known(f + RES) ? RES : CONTENT);
    if (hashed->kind == NUMBER || (s.odd && hashed->kind >= OBJECT)) return 0; /* what Python writes otherwise has another key */
    return row(f, meta, p, r, scratch, starts);
}

/* Rows of the lines of data (n) that are not blank; their number, -1 where memory is short, -2 where there are more than `most`.
 * `words`: three letters each. */
int64_t scan(const uint8_t *data, int64_t n, Row *rows, int64_t most, const char *words) {
    const uint8_t *p = data, *end = data + n;
    int64_t count = 0;
    size_t room = 0;
    uint8_t *scratch = 0;
    uint8_t starts[1 << 15] = {0};
    Key keys[KEYS] = {{{0}, 0, 0}};
    for (; *words; words += 3) starts[three((const uint8_t *)words)] = 1;
    while (p < end) {
        const uint8_t *stop = memchr(p, '\n', (size_t)(end - p)), *next, *last;
        if (!stop) stop = end;
        next = stop + 1;
        for (last = stop; last > p && (last[-1] == ' ' || (last[-1] >= 9 && last[-1] <= 13)); last--) {}
        size_t size = (size_t)(last - p);
        if (size && size < (1u << 31)) {
            if (size + 16 > room) {
                free(scratch);
                room = 2 * size + 65536;
                if (!(scratch = malloc(room))) return -1;
            }
            if (count == most) { free(scratch); return -2; }
            Row *r = rows + count++;
            memset(r, 0, sizeof *r);
            r->step = r->time = r->latency = r->tokens = r->reward = r->total = NAN;
            r->success = -1;
            r->id.at = r->tool.at = r->err.at = r->task.at = r->group.at = r->stop.at = -1;
            r->line = p - data;
            r->len = (int32_t)size;
            if (!line_of(p, last, r, keys, scratch, starts)) r->kind = REFUSED;
        }
        p = next;
    }
    free(scratch);
    return count;
}

/* The key of arguments, or of a result that is no text, as a row has it. */
uint64_t hash_json(const uint8_t *p, int64_t n) {
    uint8_t *scratch = malloc((size_t)n + 16);
    if (!scratch) return 0;
    Val v = {p, p + n, OBJECT, 0};
    uint64_t h = hash_value(&v, scratch);
    free(scratch);
    return h;
}
