/* Preloaded into a process, records each change and each sync of some files in the file VERIFY_RECORD, so that a power
   cut at any later moment can be computed (disk.py reads it). VERIFY_RECORD_PATHS has the beginnings of the paths of
   these files, separated by colons.

   A change is recorded after it was made and before its caller continues, and a sync after it has succeeded, with the
   length that the record had when the sync began. So a change that precedes that length is on disk. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x46444c52u
#define PARTS_MAX 64
#define LOWEST_FD 800 /* out of the way of programs that close or reuse low numbers */

struct header {
    uint32_t magic;
    uint8_t kind;
    uint8_t padding;
    uint16_t path_bytes;
    int64_t offset;
    int64_t bytes; /* length of the change; the content follows the path, unless all of it is zero */
    int64_t content_bytes;
    int64_t at_ns; /* on the monotonic clock */
};

static int record = -1;
static char *beginnings;

#define NEXT(function) \
    static __typeof__(&function) next; \
    if (!next) \
        next = (__typeof__(&function))dlsym(RTLD_NEXT, #function)

__attribute__((constructor)) static void open_record(void)
{
    const char *path = getenv("VERIFY_RECORD");
    const char *paths = getenv("VERIFY_RECORD_PATHS");
    if (!path || !paths || !(beginnings = strdup(paths))) /* PostgreSQL overwrites its environment with its title */
        return;
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return;
    record = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
    close(fd);
}

/* Return true for a recorded file, and for the directories above one, which are synced, too. */
static int is_recorded(const char *path)
{
    size_t bytes = strlen(path);
    for (const char *at = beginnings; at && *at;) {
        size_t length = strcspn(at, ":");
        if (strncmp(path, at, length) == 0 || (bytes < length && strncmp(path, at, bytes) == 0 && at[bytes] == '/'))
            return 1;
        at += length + (at[length] == ':');
    }
    return 0;
}

/* Write the path of a descriptor, and return its length. 0 if it is not recorded. */
static int path_of(int fd, char *path)
{
    char link[32];
    if (record < 0 || fd < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t count = readlink(link, path, PATH_MAX - 1);
    if (count <= 0)
        return 0;
    path[count] = 0;
    return is_recorded(path) ? (int)count : 0;
}

static void add(int kind, const char *path, int64_t offset, int64_t bytes, const struct iovec *parts, int count)
{
    int64_t content = 0;
    for (int i = 0; i < count; i++)
        for (size_t at = 0; at < parts[i].iov_len && !content; at++)
            content = ((const char *)parts[i].iov_base)[at] != 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t at_ns = now.tv_sec * 1000000000ll + now.tv_nsec;
    struct header header = {MAGIC, kind, 0, strlen(path), offset, bytes, content ? bytes : 0, at_ns};
    struct iovec all[PARTS_MAX + 2] = {{&header, sizeof header}, {(void *)path, header.path_bytes}};
    int used = 2;
    int64_t left = header.content_bytes;
    for (int i = 0; i < count && left > 0 && used < PARTS_MAX + 2; i++) {
        all[used] = parts[i];
        if ((int64_t)all[used].iov_len > left)
            all[used].iov_len = left;
        left -= all[used++].iov_len;
    }
    int before = errno;
    static ssize_t (*next)(int, const struct iovec *, int);
    if (!next)
        next = dlsym(RTLD_NEXT, "writev");
    if (next(record, all, used) < 0)
        abort(); /* without the record the result of a cut would be wrong */
    errno = before;
}

static void wrote(int fd, const struct iovec *parts, int count, off_t offset, ssize_t done)
{
    char path[PATH_MAX];
    if (done > 0 && path_of(fd, path))
        add('w', path, offset, done, parts, count);
}

static off_t end_of(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 ? found.st_size : 0;
}

/* Return where the bytes that a write without an offset has just written begin. */
static off_t began_at(int fd, ssize_t done) { return lseek(fd, 0, SEEK_CUR) - done; }

ssize_t write(int fd, const void *bytes, size_t count)
{
    NEXT(write);
    ssize_t done = next(fd, bytes, count);
    char path[PATH_MAX];
    if (done > 0 && record >= 0 && path_of(fd, path)) {
        struct iovec part = {(void *)bytes, done};
        add('w', path, began_at(fd, done), done, &part, 1);
    }
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev);
    ssize_t done = next(fd, parts, count);
    if (done > 0 && record >= 0)
        wrote(fd, parts, count, began_at(fd, done), done);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    NEXT(pwrite);
    ssize_t done = next(fd, bytes, count, offset);
    struct iovec part = {(void *)bytes, done > 0 ? done : 0};
    wrote(fd, &part, 1, offset, done);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset) { return pwrite(fd, bytes, count, offset); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    NEXT(pwritev);
    ssize_t done = next(fd, parts, count, offset);
    wrote(fd, parts, count, offset, done);
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev(fd, parts, count, offset); }

/* Record a file that may be new, or that was emptied. A new file without content is a change, too. */
static int opened(int fd, int flags)
{
    char path[PATH_MAX];
    int before = errno;
    if (fd >= 0 && record >= 0 && (flags & (O_CREAT | O_TRUNC)) && path_of(fd, path))
        add(flags & O_TRUNC ? 't' : 'c', path, 0, 0, NULL, 0);
    errno = before;
    return fd;
}

#define OPEN(function) \
    int function(const char *path, int flags, ...) \
    { \
        NEXT(function); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return opened(next(path, flags, mode), flags); \
    }

#define OPENAT(function) \
    int function(int directory, const char *path, int flags, ...) \
    { \
        NEXT(function); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return opened(next(directory, path, flags, mode), flags); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static void resized(int fd, int kind, off_t length)
{
    char path[PATH_MAX];
    if (path_of(fd, path))
        add(kind, path, length, 0, NULL, 0);
}

int ftruncate(int fd, off_t length)
{
    NEXT(ftruncate);
    int result = next(fd, length);
    if (result == 0)
        resized(fd, 't', length);
    return result;
}

int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }

int truncate(const char *path, off_t length)
{
    NEXT(truncate);
    int result = next(path, length);
    char full[PATH_MAX];
    if (result == 0 && record >= 0 && realpath(path, full) && is_recorded(full))
        add('t', full, length, 0, NULL, 0);
    return result;
}

int truncate64(const char *path, off_t length) { return truncate(path, length); }

int posix_fallocate(int fd, off_t offset, off_t count)
{
    NEXT(posix_fallocate);
    off_t before = end_of(fd);
    int result = next(fd, offset, count);
    if (result == 0 && end_of(fd) > before)
        resized(fd, 't', end_of(fd));
    return result;
}

int posix_fallocate64(int fd, off_t offset, off_t count) { return posix_fallocate(fd, offset, count); }

int fallocate(int fd, int mode, off_t offset, off_t count)
{
    NEXT(fallocate);
    off_t before = end_of(fd);
    int result = next(fd, mode, offset, count);
    if (result == 0 && end_of(fd) > before)
        resized(fd, 't', end_of(fd));
    return result;
}

int fallocate64(int fd, int mode, off_t offset, off_t count) { return fallocate(fd, mode, offset, count); }

static void synced(int fd, off_t upto)
{
    char path[PATH_MAX];
    if (path_of(fd, path))
        add('s', path, upto, 0, NULL, 0);
}

int fsync(int fd)
{
    NEXT(fsync);
    off_t upto = record >= 0 ? end_of(record) : 0;
    int result = next(fd);
    if (result == 0)
        synced(fd, upto);
    return result;
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    off_t upto = record >= 0 ? end_of(record) : 0;
    int result = next(fd);
    if (result == 0)
        synced(fd, upto);
    return result;
}

/* Resolve the directory of a name that may be gone already. Returns false if it is not recorded. */
static int full_path(const char *path, char *full)
{
    char directory[PATH_MAX], resolved[PATH_MAX];
    const char *name = strrchr(path, '/');
    if (record < 0)
        return 0;
    snprintf(directory, sizeof directory, "%.*s", name ? (int)(name - path) : 1, name ? path : ".");
    if (!realpath(directory, resolved))
        return 0;
    if (snprintf(full, PATH_MAX, "%s/%s", resolved, name ? name + 1 : path) >= PATH_MAX)
        return 0;
    return is_recorded(full);
}

static void removed(const char *path)
{
    char full[PATH_MAX];
    if (full_path(path, full))
        add('u', full, 0, 0, NULL, 0);
}

int unlink(const char *path)
{
    NEXT(unlink);
    int result = next(path);
    if (result == 0)
        removed(path);
    return result;
}

int unlinkat(int directory, const char *path, int flags)
{
    NEXT(unlinkat);
    int result = next(directory, path, flags);
    if (result == 0 && directory == AT_FDCWD && !(flags & AT_REMOVEDIR))
        removed(path);
    return result;
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    int result = next(from, to);
    char source[PATH_MAX], target[PATH_MAX];
    if (result == 0 && full_path(from, source) && full_path(to, target)) {
        struct iovec part = {target, strlen(target)};
        add('r', source, 0, part.iov_len, &part, 1);
    }
    return result;
}
