/* Preloaded into a job's processes: moves the time of day by as many seconds as the file CHAOS_CLOCK holds (a double),
   also in the deadlines of waits, which the kernel counts by the true clock. Clocks that count from the machine's start
   stay as they are, as when somebody sets the clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SINCE_1970 1000000000 /* a deadline above this isn't counted from the machine's start */

static volatile double *moved;
static long (*true_syscall)(long, ...);

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) moved = page;
  close(file);
}

static long offset(void) { return moved ? (long)*moved : 0; }

static long kernel(long number, long a, long b, long c, long d, long e, long f) {
  if (!true_syscall) true_syscall = dlsym(RTLD_NEXT, "syscall");
  return true_syscall(number, a, b, c, d, e, f);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)kernel(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return result;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec fine;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &fine);
  now->tv_sec = fine.tv_sec;
  now->tv_usec = fine.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

static const struct timespec *true_deadline(const struct timespec *deadline, struct timespec *own) {
  if (!deadline || deadline->tv_sec < SINCE_1970) return deadline;
  *own = *deadline;
  own->tv_sec -= offset();
  return own;
}

#define NEXT(name, version) \
  static __typeof__(&name) next; \
  if (!next) next = dlvsym(RTLD_NEXT, #name, version); \
  if (!next) next = dlsym(RTLD_NEXT, #name); \
  struct timespec own

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
  NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
  return next(condition, mutex, true_deadline(deadline, &own));
}

int pthread_cond_clockwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *deadline) {
  NEXT(pthread_cond_clockwait, "GLIBC_2.34");
  return next(condition, mutex, clock, clock == CLOCK_REALTIME ? true_deadline(deadline, &own) : deadline);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *deadline) {
  NEXT(pthread_mutex_timedlock, "GLIBC_2.34");
  return next(mutex, true_deadline(deadline, &own));
}

int sem_timedwait(sem_t *semaphore, const struct timespec *deadline) {
  NEXT(sem_timedwait, "GLIBC_2.34");
  return next(semaphore, true_deadline(deadline, &own));
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline) {
  NEXT(sem_clockwait, "GLIBC_2.34");
  return next(semaphore, clock, clock == CLOCK_REALTIME ? true_deadline(deadline, &own) : deadline);
}

long syscall(long number, ...) {
  va_list rest;
  long argument[6];
  struct timespec own;
  va_start(rest, number);
  for (int i = 0; i < 6; i++) argument[i] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_futex && (argument[1] & FUTEX_CLOCK_REALTIME))
    argument[3] = (long)true_deadline((const struct timespec *)argument[3], &own);
  return kernel(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
