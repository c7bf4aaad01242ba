/* Calls on files of the database fail as the control file says: "fdatasync 5" lets the one fail with errno 5.
   Loaded before the C library. What is not named, and every other file, works. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(int fd, const char *call) {
  char link[64], path[4096], control[256] = "", named[64];
  int number = 0;
  const char *where = getenv("FAILING_DISK");
  if (where == NULL) return 0;
  int file = syscall(SYS_openat, AT_FDCWD, where, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return 0;
  ssize_t size = syscall(SYS_read, file, control, sizeof control - 1);
  syscall(SYS_close, file);
  if (size <= 0 || sscanf(control, "%63s %d", named, &number) != 2 || strcmp(named, call) != 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  if (strstr(path, "gateway.db") == NULL) return 0;
  errno = number;
  return 1;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

int fsync(int fd) {
  return fails(fd, "sync") ? -1 : REAL(int, "fsync", int)(fd);
}

int fdatasync(int fd) {
  return fails(fd, "sync") ? -1 : REAL(int, "fdatasync", int)(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
  return fails(fd, "write") ? -1 : REAL(ssize_t, "write", int, const void *, size_t)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return fails(fd, "write") ? -1 : REAL(ssize_t, "pwrite", int, const void *, size_t, off_t)(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return fails(fd, "write") ? -1 : REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, data, size, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at) {
  return fails(fd, "read") ? -1 : REAL(ssize_t, "pread", int, void *, size_t, off_t)(fd, data, size, at);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
  return fails(fd, "read") ? -1 : REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(fd, data, size, at);
}
