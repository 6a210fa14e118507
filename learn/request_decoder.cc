// SPDX-License-Identifier: Apache-2.0
#include "learn/request_decoder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fuse/transport/request_trace.h"

namespace cacheshim::learn {
namespace {

// Returns the protocol structure at offset `at`; missing bytes are zero.
template <class Body>
Body read(std::string_view bytes, std::size_t at) {
  Body body{};
  if (at < bytes.size()) {
    std::memcpy(&body, bytes.data() + at, std::min(sizeof body, bytes.size() - at));
  }
  return body;
}

std::string text_at(std::string_view bytes, std::size_t at) {
  const std::string_view rest = bytes.substr(std::min(at, bytes.size()));
  return std::string(rest.substr(0, rest.find('\0')));
}

// The names that the kernel knows, by node number.
class Names {
 public:
  void know(std::uint64_t node, std::uint64_t parent, const std::string& name) {
    forget(node);
    nodes_[node] = {parent, name};
    children_[{parent, name}] = node;
  }
  void forget(std::uint64_t node) {
    const auto known = nodes_.find(node);
    if (known == nodes_.end()) return;
    const auto child = children_.find(known->second);
    if (child != children_.end() && child->second == node) children_.erase(child);
    nodes_.erase(known);
  }
  void remove(std::uint64_t parent, const std::string& name) {
    const auto child = children_.find({parent, name});
    if (child != children_.end()) forget(child->second);
  }
  void move(const std::pair<std::uint64_t, std::string>& from, std::uint64_t parent,
            const std::string& name) {
    const auto child = children_.find(from);
    const std::uint64_t node = child == children_.end() ? 0 : child->second;
    remove(parent, name);
    if (node != 0) know(node, parent, name);
  }
  std::optional<std::string> path(std::uint64_t node) const {
    std::string path;
    for (int depth = 0; node != FUSE_ROOT_ID; ++depth) {
      const auto known = nodes_.find(node);
      if (known == nodes_.end() || depth == kMostDepth) return std::nullopt;
      path = path.empty() ? known->second.second : known->second.second + '/' + path;
      node = known->second.first;
    }
    return path;
  }
  std::optional<std::string> path(std::uint64_t parent, const std::string& name) const {
    auto path = this->path(parent);
    if (path) *path += (path->empty() ? "" : "/") + name;
    return path;
  }

 private:
  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::string>> nodes_;
  std::map<std::pair<std::uint64_t, std::string>, std::uint64_t> children_;
};

class Decoder {
 public:
  void add_request(std::string_view bytes) {
    const auto in = read<fuse_in_header>(bytes, 0);
    if (in.opcode == FUSE_FORGET) {
      names_.forget(in.nodeid);
    } else if (in.opcode == FUSE_BATCH_FORGET) {
      forget_all(bytes);
    } else {
      open_[in.unique] = bytes;
    }
  }

  void add_reply(std::string_view bytes) {
    const auto out = read<fuse_out_header>(bytes, 0);
    const auto found = open_.find(out.unique);
    if (found == open_.end()) return;
    const std::string_view request = found->second;
    open_.erase(found);
    handle(request, -out.error, read<std::uint64_t>(bytes, sizeof out));
  }

  std::vector<FileEvent> take() { return std::move(events_); }

 private:
  using Op = FileEvent::Op;

  void forget_all(std::string_view bytes) {
    const auto body = read<fuse_batch_forget_in>(bytes, sizeof(fuse_in_header));
    std::size_t at = sizeof(fuse_in_header) + sizeof body;
    for (std::uint32_t i = 0; i < body.count && at < bytes.size(); ++i) {
      names_.forget(read<fuse_forget_one>(bytes, at).nodeid);
      at += sizeof(fuse_forget_one);
    }
  }

  void handle(std::string_view request, int error, std::uint64_t node) {
    const auto in = read<fuse_in_header>(request, 0);
    const std::size_t body = sizeof in;
    switch (in.opcode) {
      case FUSE_LOOKUP:
        // If the node is 0, the reply is an ENOENT that the kernel may cache.
        return name(Op::kLookup, in, text_at(request, body),
                    node == 0 && error == 0 ? ENOENT : error, node);
      case FUSE_MKDIR:
        return name(Op::kMakeDir, in, text_at(request, body + sizeof(fuse_mkdir_in)), error, node);
      case FUSE_SYMLINK:
        return name(Op::kCreate, in, text_at(request, body), error, node);
      case FUSE_MKNOD:
        return name(Op::kCreate, in, text_at(request, body + sizeof(fuse_mknod_in)), error, node);
      case FUSE_CREATE:
        return create(in, request, error, node);
      case FUSE_OPEN: {
        const auto flags = read<fuse_open_in>(request, body).flags;
        return file(Op::kOpen, in, error, (flags & O_ACCMODE) != O_RDONLY);
      }
      case FUSE_SETLK:
      case FUSE_SETLKW: {
        const bool unlocks = read<fuse_lk_in>(request, body).lk.type == F_UNLCK;
        return file(unlocks ? Op::kUnlock : Op::kLock, in, error, false);
      }
      case FUSE_UNLINK:
        return remove(Op::kUnlink, in, text_at(request, body), error);
      case FUSE_RMDIR:
        return remove(Op::kRmdir, in, text_at(request, body), error);
      case FUSE_RENAME:
        return rename(in, request, body + sizeof(fuse_rename_in), error);
      case FUSE_RENAME2:
        return rename(in, request, body + sizeof(fuse_rename2_in), error);
      case FUSE_LINK:
        return link(in, request, error);
      default:
        return;  // other requests, such as FUSE_RELEASE, are not events
    }
  }

  void add(FileEvent event) {
    if (events_.size() < kMostEvents) events_.push_back(std::move(event));
  }

  // Adds the event of a request for a name in a directory. `node` is the node number of the object
  // that the request has found or created; 0 if none.
  void name(Op op, const fuse_in_header& in, const std::string& name, int error,
            std::uint64_t node) {
    if (error == 0 && node != 0) names_.know(node, in.nodeid, name);
    const auto path = names_.path(in.nodeid, name);
    if (path) add({.op = op, .thread = thread_of(in), .path = *path, .error = error});
  }

  void remove(Op op, const fuse_in_header& in, const std::string& name, int error) {
    this->name(op, in, name, error, 0);
    if (error == 0) names_.remove(in.nodeid, name);
  }

  void create(const fuse_in_header& in, std::string_view request, int error, std::uint64_t node) {
    const auto body = read<fuse_create_in>(request, sizeof in);
    const std::string name = text_at(request, sizeof in + sizeof body);
    if (name == "/") return;  // O_TMPFILE: linking the file gives it a name
    if (error == 0) names_.know(node, in.nodeid, name);
    const auto path = names_.path(in.nodeid, name);
    if (!path) return;
    add({.op = Op::kCreate,
         .thread = thread_of(in),
         .path = *path,
         .error = error,
         .writes = true,
         .is_exclusive = (body.flags & O_EXCL) != 0});
  }

  void file(Op op, const fuse_in_header& in, int error, bool writes) {
    const auto path = names_.path(in.nodeid);
    if (path)
      add({.op = op, .thread = thread_of(in), .path = *path, .error = error, .writes = writes});
  }

  void rename(const fuse_in_header& in, std::string_view request, std::size_t at, int error) {
    const auto to_parent = read<fuse_rename_in>(request, sizeof in).newdir;
    const std::string from = text_at(request, at);
    const std::string to = text_at(request, at + from.size() + 1);
    const auto from_path = names_.path(in.nodeid, from);
    const auto to_path = names_.path(to_parent, to);
    if (error == 0) names_.move({in.nodeid, from}, to_parent, to);
    if (!from_path || !to_path) return;
    add({.op = Op::kRename,
         .thread = thread_of(in),
         .path = *from_path,
         .to = *to_path,
         .error = error});
  }

  void link(const fuse_in_header& in, std::string_view request, int error) {
    const auto from = names_.path(read<fuse_link_in>(request, sizeof in).oldnodeid);
    const auto to = names_.path(in.nodeid, text_at(request, sizeof in + sizeof(fuse_link_in)));
    if (!to) return;
    add({.op = Op::kLink,
         .thread = thread_of(in),
         .path = from.value_or(""),
         .to = *to,
         .error = error});
  }

  static pid_t thread_of(const fuse_in_header& in) { return static_cast<pid_t>(in.pid); }

  Names names_;
  // Requests without a reply so far, indexed by their field `unique`.
  std::unordered_map<std::uint64_t, std::string_view> open_;
  std::vector<FileEvent> events_;
};

}  // namespace

std::vector<FileEvent> decode_requests(std::string_view records) {
  Decoder decoder;
  while (records.size() >= sizeof(TraceRecord)) {
    const auto record = read<TraceRecord>(records, 0);
    const std::size_t whole = (sizeof record + record.size + 7) / 8 * 8;
    if (record.kind == TraceRecord::kNone || whole > records.size()) break;
    const std::string_view bytes = records.substr(sizeof record, record.size);
    record.kind == TraceRecord::kRequest ? decoder.add_request(bytes) : decoder.add_reply(bytes);
    records.remove_prefix(whole);
  }
  return decoder.take();
}

}  // namespace cacheshim::learn
