/* Counts the calls by which a process writes under a folder, and at the n-th kills the process or fails the call.

   Loaded by LD_PRELOAD (bench/campaign/faults.py), so that it sees what C++ and Rust libraries write too. Idle until
   faults_arm. Calls are told apart by a letter: o open or create for writing, w write, n rename, s fsync, d mkdir,
   u unlink or rmdir, t truncate, l link or symlink. Not seen: stores into mapped files, files that the C library opens by
   itself (mkstemp), and calls that Rust makes past it (the rename at the end of safetensors' save_file): kills after a
   time fall there too. For 64-bit Linux with glibc, where open and open64 are one. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL_BEFORE, KILL_AFTER, KILL_HALFWAY, FAIL_FROM, FAIL_ONCE, TERMINATE };  /* actions, as in faults.py */
enum { GO, AFTER, HALF, FAIL, SHORT };                                                 /* what becomes of one call */

static char prefix[PATH_MAX], kinds[32];
static long prefix_length, target, counted, failed;
static int armed, action, error_number, trace_file = -1;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define ALSO(name, other) extern __typeof__(name) other __attribute__((alias(#name)))

static void __attribute__((noreturn)) die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether a path, taken from a folder's descriptor where it is relative, lies under the prefix; written whole to `out`. */
static int under(int folder, const char *path, char *out) {
    if (!armed || !path) return 0;
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
    } else {
        char from[64];
        if (folder == AT_FDCWD) snprintf(from, sizeof from, "/proc/self/cwd");
        else snprintf(from, sizeof from, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(from, out, PATH_MAX - 1);
        if (n < 0) return 0;
        snprintf(out + n, PATH_MAX - n, "/%s", path);
    }
    return !strncmp(out, prefix, prefix_length);
}

static int under_file(int file, char *out) {
    if (!armed || file < 0) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    if (n < 0) return 0;
    out[n] = 0;
    return !strncmp(out, prefix, prefix_length);
}

/* Counts a call and says what becomes of it. */
static int meet(char kind, const char *path) {
    if (!strchr(kinds, kind)) return GO;
    long number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    if (trace_file >= 0) {
        char line[PATH_MAX + 64];
        int n = snprintf(line, sizeof line, "%ld %c %s\n", number, kind, path + prefix_length);
        if (n > 0) syscall(SYS_write, trace_file, line, n);
    }
    if (number < target || action == COUNT) return GO;
    if (number > target && action != FAIL_FROM) return GO;
    if (action == KILL_BEFORE) die();
    if (action == KILL_AFTER) return AFTER;
    if (action == KILL_HALFWAY) return HALF;
    if (action == TERMINATE) return kill(getpid(), SIGTERM), GO;
    __atomic_add_fetch(&failed, 1, __ATOMIC_SEQ_CST);
    errno = error_number;
    /* A disk that fills up takes a part of the last write. */
    return kind == 'w' && action == FAIL_FROM && number == target && error_number == ENOSPC ? SHORT : FAIL;
}

/* kind_letters: the calls that count. n: 0 for none. trace: a file that gets a line a call, or "". */
void faults_arm(const char *folder, const char *kind_letters, long n, int what, int error, const char *trace) {
    armed = 0;
    if (trace_file >= 0) close(trace_file);
    snprintf(prefix, sizeof prefix, "%s", folder);
    snprintf(kinds, sizeof kinds, "%s", kind_letters);
    prefix_length = strlen(prefix);
    target = n, action = n ? what : COUNT, error_number = error, counted = failed = 0;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    trace_file = *trace ? (int)syscall(SYS_openat, AT_FDCWD, trace, flags, 0644) : -1;
    armed = 1;
}
void faults_disarm(void) { armed = 0; }
long faults_count(void) { return counted; }
long faults_failed(void) { return failed; }

/* A call that is done or not done. */
#define WHOLE(kind, seen, bad, call) \
    do { \
        char where[PATH_MAX]; \
        int then = seen ? meet(kind, where) : GO; \
        if (then >= FAIL) return bad; \
        __auto_type result = call; \
        if (then != GO) die(); \
        return result; \
    } while (0)
#define PATH(kind, folder, path, call) WHOLE(kind, under(folder, path, where), -1, call)
#define ANY AT_FDCWD

/* A write of `size` bytes; half_call writes the first half of them. */
#define WRITE(file, size, call, half_call) \
    do { \
        char where[PATH_MAX]; \
        int then = under_file(file, where) ? meet('w', where) : GO; \
        if (then == FAIL || (then == SHORT && size < 2)) return errno = error_number, -1; \
        if (then == SHORT) return half_call; \
        if (then == HALF && size > 1 && (half_call) >= 0) die(); \
        if (then == HALF) die(); \
        ssize_t result = call; \
        if (then == AFTER) die(); \
        return result; \
    } while (0)

#define WRITES(flags) (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    REAL(open);
    MODE(flags);
    if (!WRITES(flags)) return real(path, flags, mode);
    PATH('o', ANY, path, real(path, flags, mode));
}
int openat(int at, const char *path, int flags, ...) {
    REAL(openat);
    MODE(flags);
    if (!WRITES(flags)) return real(at, path, flags, mode);
    PATH('o', at, path, real(at, path, flags, mode));
}
int creat(const char *path, mode_t mode) { REAL(creat); PATH('o', ANY, path, real(path, mode)); }
FILE *fopen(const char *path, const char *mode) {
    REAL(fopen);
    if (!strpbrk(mode, "wa+")) return real(path, mode);
    WHOLE('o', under(ANY, path, where), NULL, real(path, mode));
}
ALSO(open, open64);
ALSO(openat, openat64);
ALSO(creat, creat64);
ALSO(fopen, fopen64);

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    WRITE(file, size, real(file, data, size), real(file, data, size / 2));
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    WRITE(file, size, real(file, data, size, at), real(file, data, size / 2, at));
}
/* writev and pwritev with the first part alone, or half of it where it is the only one. */
static ssize_t some_of(int file, const struct iovec *parts, int count, off_t at) {
    size_t size = count > 1 ? parts[0].iov_len : parts[0].iov_len / 2;
    return at < 0 ? syscall(SYS_write, file, parts[0].iov_base, size)
                  : syscall(SYS_pwrite64, file, parts[0].iov_base, size, at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    WRITE(file, parts[0].iov_len, real(file, parts, count), some_of(file, parts, count, -1));
}
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    WRITE(file, parts[0].iov_len, real(file, parts, count, at), some_of(file, parts, count, at));
}
ssize_t sendfile(int out, int in, off_t *at, size_t size) {
    REAL(sendfile);
    WRITE(out, size, real(out, in, at, size), real(out, in, at, size / 2));
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    REAL(copy_file_range);
    WRITE(out, size, real(in, from, out, to, size, flags), real(in, from, out, to, size / 2, flags));
}
ALSO(pwrite, pwrite64);
ALSO(pwritev, pwritev64);
ALSO(sendfile, sendfile64);

/* The C library's own buffer stands between fwrite and the file: a killed process loses it, as it would. */
size_t fwrite(const void *data, size_t width, size_t items, FILE *stream) {
    REAL(fwrite);
    char where[PATH_MAX];
    int then = armed && under_file(fileno_unlocked(stream), where) ? meet('w', where) : GO;
    if (then == FAIL) return 0;
    if (then == HALF || then == SHORT) {
        size_t written = real(data, 1, width * items / 2, stream);
        fflush_unlocked(stream);
        if (then == HALF) die();
        errno = error_number;
        return width ? written / width : 0;
    }
    size_t result = real(data, width, items, stream);
    if (then == AFTER) die();
    return result;
}
#define FLUSH(stream, call) \
    char where[PATH_MAX]; \
    int file = armed && stream ? fileno_unlocked(stream) : -1; \
    int seen = file >= 0 && (fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY && under_file(file, where); \
    int then = seen ? meet('w', where) : GO, result = call; \
    if (then == AFTER || then == HALF) die(); \
    if (then >= FAIL) return errno = error_number, EOF; \
    return result
int fflush(FILE *stream) { REAL(fflush); FLUSH(stream, real(stream)); }
int fclose(FILE *stream) { REAL(fclose); FLUSH(stream, real(stream)); }

int rename(const char *from, const char *to) { REAL(rename); PATH('n', ANY, to, real(from, to)); }
int renameat(int a, const char *from, int b, const char *to) { REAL(renameat); PATH('n', b, to, real(a, from, b, to)); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    PATH('n', b, to, real(a, from, b, to, flags));
}
int fsync(int file) { REAL(fsync); WHOLE('s', under_file(file, where), -1, real(file)); }
int fdatasync(int file) { REAL(fdatasync); WHOLE('s', under_file(file, where), -1, real(file)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); PATH('d', ANY, path, real(path, mode)); }
int mkdirat(int at, const char *path, mode_t mode) { REAL(mkdirat); PATH('d', at, path, real(at, path, mode)); }
int unlink(const char *path) { REAL(unlink); PATH('u', ANY, path, real(path)); }
int unlinkat(int at, const char *path, int flags) { REAL(unlinkat); PATH('u', at, path, real(at, path, flags)); }
int rmdir(const char *path) { REAL(rmdir); PATH('u', ANY, path, real(path)); }
int remove(const char *path) { REAL(remove); PATH('u', ANY, path, real(path)); }
int truncate(const char *path, off_t size) { REAL(truncate); PATH('t', ANY, path, real(path, size)); }
int ftruncate(int file, off_t size) { REAL(ftruncate); WHOLE('t', under_file(file, where), -1, real(file, size)); }
int link(const char *from, const char *to) { REAL(link); PATH('l', ANY, to, real(from, to)); }
int symlink(const char *to, const char *path) { REAL(symlink); PATH('l', ANY, path, real(to, path)); }
ALSO(truncate, truncate64);
ALSO(ftruncate, ftruncate64);
