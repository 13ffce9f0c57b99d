#include "base/failure.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reply.h"
#include "base/text.h"
#include "base/url.h"

#define NAME(CODE, name) #name,
static const char *const NAMES[] = {HF_CODE_LIST(NAME)};

static const char *const ADVICE[] = {
    [HF_BUSY] = "wait longer or try again later",
    [HF_UNREACHABLE] = "check that the server is running and can be reached from here",
    [HF_LOST] = "treat the work as unprotected, and check the fencing token",
    [HF_NOT_HELD] = "release and extend only what this owner has acquired",
    [HF_CONFLICT] = "use another key or a prefix",
    [HF_DENIED] = "check the user, the password and the ACL, and that the server is a master",
    [HF_NO_QUORUM] = "check that enough of the servers are running and reachable",
    [HF_MISMATCH] = "use a new key for a new request",
    [HF_CLOSED] = "create a new client",
    [HF_DEADLOCK] = "release what you hold and start again",
    [HF_TIMEOUT] = "wait longer or try again later",
    [HF_STALE] = "stop, because you no longer hold the lock",
};

/* More specific advice, for failures whose messages contain `phrase`. */
static const struct {
    hf_code code;
    const char *phrase, *advice;
} SPECIFIC_ADVICE[] = {
    {HF_DEADLOCK, "a reader cannot become a writer",
     "release the read lock and acquire the write lock instead"},
    {HF_BUSY, "this owner already holds it", "release it first; waiting will not help"},
    {HF_BUSY, "and max_waiters is", "try again later, or raise max_waiters"},
    {HF_NO_QUORUM, "restarted recently",
     "wait longer than restart_guard, and check that enough of the servers are running"},
    {HF_BUSY, "another process holds the lock under this owner's name",
     "release it there, or use another owner; waiting will not help"},
    {HF_SERVER, "DB index is out of range", "check the database number"},
    {HF_DENIED, "READONLY", "check that the server is a master"},
    {HF_UNREACHABLE, HF_REPLY_TOO_LARGE, "check what is stored there"},
    {HF_UNREACHABLE, "NOREPLICAS", "check the server's replicas and min-replicas-to-write"},
    {HF_UNREACHABLE, "MISCONF", "check the server's disk and log"},
    {HF_UNREACHABLE, "OOM", "check the server's memory and maxmemory setting"},
    {HF_UNREACHABLE, "BUSY ", "check which script the server is running"},
    {HF_UNREACHABLE, "LOADING", "wait until the server has loaded its data"},
    {HF_UNREACHABLE, "CLUSTERDOWN", "check the cluster with CLUSTER INFO"},
    {HF_UNREACHABLE, "MASTERDOWN", "check the replica's link to its master"},
    {HF_UNREACHABLE, "READONLY", "check which master the Sentinels name"},
    {HF_UNREACHABLE, "no resolver defined",
     "add a resolver to nginx.conf, or use an IP address in the URL"},
    {HF_UNREACHABLE, "as the name of a node", "set cluster-announce-hostname on each node"},
    {HF_UNREACHABLE, "no credentials: ", "check where the credentials come from"},
    {HF_DENIED, "no credentials: ", "check what the function credentials returns"},
    {HF_CONFLICT, "the resource belongs to the lock",
     "write under that lock, or use another resource"},
    {HF_CONFLICT, "WRONGTYPE",
     "use client:mutex for a string set with SET NX; otherwise use another key or a prefix"},
};

static const char *advice_on(hf_code code, const char *detail) {
    for (size_t i = 0; i < sizeof SPECIFIC_ADVICE / sizeof *SPECIFIC_ADVICE; i++) {
        if (SPECIFIC_ADVICE[i].code == code && strstr(detail, SPECIFIC_ADVICE[i].phrase))
            return SPECIFIC_ADVICE[i].advice;
    }
    return (size_t)code < sizeof ADVICE / sizeof *ADVICE ? ADVICE[code] : NULL;
}

const char *hf_code_name(hf_code code) {
    assert(code < HF_CODES);
    return NAMES[code];
}

/* Returns the size in bytes of a UTF-8 character, or 0 if it is invalid or must not be shown. */
static size_t printable_size(const char *text, size_t left) {
    static const uint32_t min_code[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)text[0];
    if (first < 0x80) return hf_is_unsafe(first) ? 0 : 1;
    size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first < 0xc0 || first > 0xf4 || left < size) return 0;
    uint32_t code = first & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (code < min_code[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    return hf_is_unsafe(code) ? 0 : size;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Writes the key in printable form: quotes, backslashes and bytes that are not printable become
 * \xNN, and a long key is truncated. */
static void write_printable(char *out, size_t size, hf_slice key) {
    size_t used = 0, char_size;
    for (size_t i = 0; i < key.size; i += char_size ? char_size : 1) {
        bool needs_escape = key.data[i] == '"' || key.data[i] == '\\';
        char_size = needs_escape ? 0 : printable_size(key.data + i, key.size - i);
        size_t need = char_size ? char_size : 4;
        if (used + need + 4 > size || i >= 64) {
            used += (size_t)snprintf(out + used, size - used, "...");
            break;
        }
        if (char_size) memcpy(out + used, key.data + i, char_size);
        else snprintf(out + used, size - used, "\\x%02x", (unsigned char)key.data[i]);
        used += need;
    }
    out[used] = '\0';
}

/* Removes the position in a program, which does not help the caller: " script: <digest>, on
 * @user_script:38." Keeps the text after it. */
static void remove_script_position(char *detail) {
    static const char before[] = " script: ", line[] = ", on @user_script:";
    char *place = strstr(detail, before);
    if (!place || strspn(place + strlen(before), "0123456789abcdef") != 40) return;
    char *rest = place + strlen(before) + 40;
    if (starts_with(rest, line)) rest += strlen(line) + strspn(rest + strlen(line), "0123456789");
    if (*rest == '.') rest++;
    memmove(place, rest, strlen(rest) + 1);
}

/* Replaces characters that must not be shown, and invalid UTF-8, with '?'. A server's text may
 * contain any bytes, and may be truncated. */
static void replace_unprintable(char *text) {
    for (size_t char_size, left = strlen(text); left > 0; left -= char_size, text += char_size) {
        char_size = printable_size(text, left);
        if (char_size == 0) {
            *text = '?';
            char_size = 1;
        }
    }
}

/* Masks credentials, because the text may contain other keys, and a key may be a URL with a
 * password. `size` is the size of the buffer. */
static void mask_credentials(char *text, size_t size) {
    char shown[HF_FAILURE_TEXT_SIZE];
    hf_slice hidden = hf_url_mask_credentials(shown, size - 1, (hf_slice){text, strlen(text)});
    memcpy(text, hidden.data, hidden.size);
    text[hidden.size] = '\0';
}

/* Returns the offset at which to append after snprintf has returned `more` for offset `at`; the
 * text may have been truncated. */
static size_t end_of(const hf_failure *failure, size_t at, int more) {
    size_t end = at + (size_t)more, last = sizeof failure->text - 1;
    return end < last ? end : last;
}

void hf_failure_set(hf_failure *failure, hf_code code, const char *verb, hf_slice key,
                    const char *server, const char *detail, ...) {
    assert(code != HF_OK && code < HF_CODES);
    char name[112] = "", shown[128];
    write_printable(name, sizeof name, hf_url_mask_credentials(shown, sizeof shown, key));
    int used = snprintf(failure->text, sizeof failure->text,
                        key.size > 0 ? "cannot %s \"%s\" on %s: " : "cannot %s%s on %s: ", verb,
                        name, server);
    size_t at = end_of(failure, 0, used);
    va_list args;
    va_start(args, detail);
    vsnprintf(failure->text + at, sizeof failure->text - at, detail, args);
    va_end(args);
    mask_credentials(failure->text + at, sizeof failure->text - at);
    remove_script_position(failure->text + at);
    const char *advice = advice_on(code, failure->text + at);
    at += strlen(failure->text + at);
    /* Server messages may end with a full stop. */
    if (advice && at > 0 && failure->text[at - 1] == '.') at--;
    if (advice) snprintf(failure->text + at, sizeof failure->text - at, "; %s", advice);
    replace_unprintable(failure->text);
    failure->code = code;
}

void hf_fault_set(hf_fault *fault, hf_code code, const char *text) {
    size_t size = strnlen(text, HF_FAILURE_TEXT_SIZE - 1);
    char *copy = size > 0 ? malloc(size + 1) : NULL;
    if (copy) {
        memcpy(copy, text, size);
        copy[size] = '\0';
    }
    hf_fault_free(fault);
    *fault = (hf_fault){code, copy};
}

const char *hf_fault_text(const hf_fault *fault) {
    if (fault->text) return fault->text;
    return fault->code != HF_OK ? hf_code_name(fault->code) : "";
}

void hf_fault_free(hf_fault *fault) {
    free(fault->text);
    fault->text = NULL;
}

/* The error replies that the core distinguishes. A server older than version 7 reports a refused
 * write as a script error that contains the refusal after a minus. */
static const struct known_error {
    const char *prefix;
    hf_code code;
    hf_refusal refusal;
} KNOWN_ERRORS[] = {
    {"NOAUTH", HF_DENIED, HF_REFUSAL_OF_USER},
    {"WRONGPASS", HF_DENIED, HF_REFUSAL_OF_USER},
    {"NOPERM", HF_DENIED, HF_REFUSAL_OF_USER},
    {"ERR invalid password", HF_DENIED, HF_REFUSAL_OF_USER},
    {"ERR Client sent AUTH", HF_DENIED, HF_REFUSAL_OF_USER},
    {"ERR AUTH", HF_DENIED, HF_REFUSAL_OF_USER},
    {"DENIED", HF_DENIED, HF_REFUSAL_OF_USER},
    {"READONLY", HF_DENIED, HF_REFUSAL_OF_WRITES},
    {"NOREPLICAS", HF_UNREACHABLE, HF_REFUSAL_OF_WRITES},
    {"MISCONF", HF_UNREACHABLE, HF_REFUSAL_OF_WRITES},
    {"OOM ", HF_UNREACHABLE, HF_REFUSAL_OF_WRITES},
    {"LOADING", HF_UNREACHABLE, HF_REFUSAL_UNAVAILABLE},
    {"TRYAGAIN", HF_UNREACHABLE, HF_REFUSAL_UNAVAILABLE},
    {"CLUSTERDOWN", HF_UNREACHABLE, HF_REFUSAL_UNAVAILABLE},
    {"MASTERDOWN", HF_UNREACHABLE, HF_REFUSAL_UNAVAILABLE},
    {"BUSY ", HF_UNREACHABLE, HF_REFUSAL_BUSY},
};
static const struct known_error MISSING_PERMISSION = {"", HF_DENIED, HF_REFUSAL_OF_USER};
static const struct known_error REPLICA = {"", HF_DENIED, HF_REFUSAL_OF_WRITES};

static bool is_in_script_error(const char *error, const char *prefix) {
    const char *minus =
        starts_with(error, "ERR Error running script") ? strstr(error, ": -") : NULL;
    return minus && starts_with(minus + 3, prefix);
}

/* Server versions report a script's missing permission in different ways. */
static bool is_missing_permission(const char *error) {
    return strstr(error, "NOPERM") ||
           strstr(error, "The user executing the script can't") || /* 6, 7.0 */
           strstr(error, "ACL failure in script");                 /* 7.2, 8, Valkey */
}

static bool is_wrong_type(const char *error) {
    return strstr(error, "WRONGTYPE"); /* servers before 7 put it inside a script error */
}

static const struct known_error *find_known_error(const char *error) {
    const struct known_error *inside = NULL;
    for (size_t i = 0; i < sizeof KNOWN_ERRORS / sizeof *KNOWN_ERRORS; i++) {
        if (starts_with(error, KNOWN_ERRORS[i].prefix)) return &KNOWN_ERRORS[i];
        if (is_in_script_error(error, KNOWN_ERRORS[i].prefix)) inside = &KNOWN_ERRORS[i];
    }
    if (inside || is_wrong_type(error)) return inside;
    if (strstr(error, "-READONLY")) return &REPLICA;
    return is_missing_permission(error) ? &MISSING_PERMISSION : NULL;
}

hf_code hf_code_of_error(const char *error) {
    const struct known_error *known = find_known_error(error);
    if (known) return known->code;
    if (is_wrong_type(error)) return HF_CONFLICT;
    return strstr(error, "max number of clients") ? HF_UNREACHABLE : HF_SERVER;
}

bool hf_error_is_readonly(const char *error) {
    return starts_with(error, "READONLY") || strstr(error, "-READONLY");
}

hf_refusal hf_refusal_of(const char *error) {
    const struct known_error *known = find_known_error(error);
    return known ? known->refusal : HF_REFUSAL_FINAL;
}

bool hf_refusal_is_transient(hf_refusal refusal, bool accepted) {
    return refusal != HF_REFUSAL_FINAL && (accepted || refusal != HF_REFUSAL_OF_USER);
}

bool hf_code_is_transient(hf_code code, bool accepted) {
    switch (code) {
    case HF_BUSY:
    case HF_UNREACHABLE:
    case HF_LOST:
    case HF_NO_QUORUM:
    case HF_SERVER:
    case HF_TIMEOUT: return true;
    case HF_DENIED: return accepted;
    default: return false;
    }
}
