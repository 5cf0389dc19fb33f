/* Preloaded into a process, makes its clock wrong, its disk full or failing, or kills it at its nth call, as the mapped
   file of the environment variable VERIFY_FAULTS says. On a full disk only calls that would make a regular file larger
   fail. `calls_left` counts the writes and syncs of regular files, and the sends of sockets: at the last one the process
   is killed, or the call and the `failures` after it fail with EIO. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
    volatile int64_t clock_offset_seconds;
    volatile int64_t disk_full;
    volatile int64_t calls_left; /* 0: off */
    volatile int64_t failures;   /* 0: kill */
};

static struct faults *faults;

__attribute__((constructor)) static void map_faults(void)
{
    const char *path = getenv("VERIFY_FAULTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        faults = mapped;
    close(fd);
}

static int64_t clock_offset(void) { return faults ? faults->clock_offset_seconds : 0; }

static int full(int fd, off_t end)
{
    struct stat found;
    return faults && faults->disk_full && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && end > found.st_size;
}

/* Count a call, which may be the last of the process. Returns true if it is to fail with EIO. */
static int failing(int fd, int file)
{
    struct stat found;
    if (!faults || faults->calls_left <= 0 || fstat(fd, &found) != 0)
        return 0;
    if (file ? !S_ISREG(found.st_mode) : !S_ISSOCK(found.st_mode))
        return 0;
    if (faults->failures) {
        if (!file || __sync_sub_and_fetch(&faults->calls_left, 1) > 0)
            return 0;
        if (__sync_sub_and_fetch(&faults->failures, 1) > 0)
            faults->calls_left = 1;
        errno = EIO;
        return 1;
    }
    if (__sync_sub_and_fetch(&faults->calls_left, 1) == 0)
        kill(getpid(), SIGKILL);
    return 0;
}

static off_t place(int fd)
{
    struct stat found;
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return fstat(fd, &found) == 0 ? found.st_size : 0;
    return lseek(fd, 0, SEEK_CUR);
}

static off_t length(const struct iovec *parts, int count)
{
    off_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].iov_len;
    return sum;
}

#define NEXT(function) \
    static __typeof__(&function) next; \
    if (!next) \
        next = (__typeof__(&function))dlsym(RTLD_NEXT, #function)
#define FAIL_IF_DUE(fd) \
    if (failing(fd, 1)) \
        return -1;
#define REFUSE_IF_FULL(fd, end) \
    if (full(fd, end)) { \
        errno = ENOSPC; \
        return -1; \
    }

int clock_gettime(clockid_t clock, struct timespec *now)
{
    NEXT(clock_gettime);
    int result = next(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += clock_offset();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    NEXT(gettimeofday);
    int result = next(now, zone);
    if (result == 0)
        now->tv_sec += clock_offset();
    return result;
}

time_t time(time_t *now)
{
    NEXT(time);
    time_t result = next(NULL) + clock_offset();
    if (now)
        *now = result;
    return result;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    NEXT(write);
    FAIL_IF_DUE(fd);
    if (faults && faults->disk_full)
        REFUSE_IF_FULL(fd, place(fd) + (off_t)count);
    return next(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev);
    FAIL_IF_DUE(fd);
    if (faults && faults->disk_full)
        REFUSE_IF_FULL(fd, place(fd) + length(parts, count));
    return next(fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    NEXT(pwrite);
    FAIL_IF_DUE(fd);
    REFUSE_IF_FULL(fd, offset + (off_t)count);
    return next(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset) { return pwrite(fd, bytes, count, offset); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    NEXT(pwritev);
    FAIL_IF_DUE(fd);
    REFUSE_IF_FULL(fd, offset + length(parts, count));
    return next(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev(fd, parts, count, offset); }

int fallocate(int fd, int mode, off_t offset, off_t count)
{
    NEXT(fallocate);
    REFUSE_IF_FULL(fd, offset + count);
    return next(fd, mode, offset, count);
}

int fallocate64(int fd, int mode, off_t offset, off_t count) { return fallocate(fd, mode, offset, count); }

int posix_fallocate(int fd, off_t offset, off_t count)
{
    NEXT(posix_fallocate);
    return full(fd, offset + count) ? ENOSPC : next(fd, offset, count);
}

int posix_fallocate64(int fd, off_t offset, off_t count) { return posix_fallocate(fd, offset, count); }

int fsync(int fd)
{
    NEXT(fsync);
    FAIL_IF_DUE(fd);
    return next(fd);
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    FAIL_IF_DUE(fd);
    return next(fd);
}

ssize_t send(int fd, const void *bytes, size_t count, int flags)
{
    NEXT(send);
    failing(fd, 0);
    return next(fd, bytes, count, flags);
}
