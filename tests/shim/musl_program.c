// SPDX-License-Identifier: Apache-2.0
// A musl program for musl.sh; its output must be the same with the library preloaded.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char* what, long result) {
  printf("%s: %ld, %s\n", what, result, result < 0 ? strerror(errno) : "");
}

int main(int argc, char** argv) {
  char text[64] = "";
  struct stat status;
  const char* const pending = dlerror();
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  setvbuf(stdout, NULL, _IONBF, 0);
  printf("dlerror at the start: %s\n", pending == NULL ? "none" : pending);
  const int fd = open("file", O_RDWR | O_CREAT, 0640);
  say("write", write(fd, "twelve bytes", 12));
  say("fstat", fstat(fd, &status) < 0 ? -1 : (long)status.st_size);
  say("close", close(fd));
  say("stat", stat("file", &status) < 0 ? -1 : (long)status.st_mode);
  say("missing", stat("missing", &status));
  say("mkdir", mkdir("directory", 0750));
  say("rename", rename("file", "directory/file"));
  FILE* stream = fopen("directory/file", "r");
  say("fgets", stream == NULL || fgets(text, sizeof text, stream) == NULL ? -1 : (long)strlen(text));
  say("fclose", stream == NULL ? -1 : fclose(stream));
  DIR* directory = opendir("directory");
  long entries = 0;
  while (directory != NULL && readdir(directory) != NULL) ++entries;
  say("readdir", entries);
  if (directory != NULL) closedir(directory);
  say("dlsym", dlsym(RTLD_DEFAULT, "getpid") != NULL);
  say("dlopen", dlopen("libnobody.so.1", RTLD_NOW) != NULL);
  say("system", system("cat directory/file > copy"));
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/cat", "cat", "copy", (char*)NULL);
    _exit(127);
  }
  int ended = -1;
  say("wait", waitpid(child, &ended, 0) == child);
  say("\nended", ended);
  say("unlink", unlink("directory/file") + unlink("copy") + rmdir("directory"));
  return 0;
}
