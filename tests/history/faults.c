/* Preloaded into a process, makes its clock wrong and its disk full, as the mapped file of the environment variable
   HISTORY_FAULTS says. Only what would make a regular file larger fails, as on a real disk. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
    volatile int64_t clock_offset_seconds;
    volatile int64_t disk_full;
};

static struct faults *faults;

__attribute__((constructor)) static void map_faults(void)
{
    const char *path = getenv("HISTORY_FAULTS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *faults, PROT_READ, MAP_SHARED, fd, 0);
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
    if (faults && faults->disk_full)
        REFUSE_IF_FULL(fd, place(fd) + (off_t)count);
    return next(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev);
    if (faults && faults->disk_full)
        REFUSE_IF_FULL(fd, place(fd) + length(parts, count));
    return next(fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    NEXT(pwrite);
    REFUSE_IF_FULL(fd, offset + (off_t)count);
    return next(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset) { return pwrite(fd, bytes, count, offset); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    NEXT(pwritev);
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
