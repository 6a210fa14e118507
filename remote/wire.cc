// SPDX-License-Identifier: Apache-2.0
#include "remote/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "store/sys/sys.h"

namespace cacheshim::remote {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

union ControlBuffer {  // aligned as cmsg(3) demands
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

// Returns the descriptor that the message carries, if any.
UniqueFd take_descriptor(msghdr& header) {
  UniqueFd file;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
    file = UniqueFd(fd);
  }
  return file;
}

}  // namespace

bool is_valid_key(std::string_view key) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return !key.empty() && key.size() <= kMostKeyBytes && std::ranges::none_of(key, is_control);
}

Status send_message(int socket, const nlohmann::json& json, int file, WhenFull when_full) {
  // dump() would throw for a key that is not valid UTF-8. With `replace`, the peer gets a different key.
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMostMessageBytes) return Errno(EMSGSIZE);
  iovec part{text.data(), text.size()};
  ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    cmsghdr* const carried = CMSG_FIRSTHDR(&header);
    carried->cmsg_level = SOL_SOCKET;
    carried->cmsg_type = SCM_RIGHTS;
    carried->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(carried), &file, sizeof file);
  }
  const int flags = MSG_NOSIGNAL | (when_full == WhenFull::kFail ? MSG_DONTWAIT : 0);
  while (::sendmsg(socket, &header, flags) < 0) {
    if (errno == ECONNRESET) return Errno(EPIPE);
    if (errno != EINTR) return Errno::last();
  }
  return {};
}

Result<Message> receive_message(int socket) {
  std::string text(kMostMessageBytes, '\0');
  iovec part{text.data(), text.size()};
  ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  ssize_t size = 0;
  while ((size = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == ECONNRESET) return Errno(EPIPE);
    if (errno != EINTR) return Errno::last();
  }
  Message message;
  message.file = take_descriptor(header);
  if (size == 0) return Errno(EPIPE);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Errno(EBADMSG);
  text.resize(static_cast<std::size_t>(size));
  message.json = nlohmann::json::parse(text, nullptr, false);
  if (!message.json.is_object()) return Errno(EBADMSG);
  return message;
}

Result<UniqueFd> make_sealed_file(std::string_view bytes) {
  UniqueFd file(::memfd_create("cacheshim-object", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return Errno::last();
  CACHESHIM_CHECK(sys::write_all(file.get(), bytes));
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return Errno::last();
  return file;
}

Result<std::string> read_sealed_file(int file, std::size_t most_bytes) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return Errno(EINVAL);
  CACHESHIM_TRY(st, sys::stat_fd(file));
  const auto size = static_cast<std::size_t>(st.st_size);
  if (size > most_bytes) return Errno(EFBIG);
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = ::pread(file, bytes.data() + done, size - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? Errno::last() : Errno(EIO);
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace cacheshim::remote
