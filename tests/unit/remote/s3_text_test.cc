// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/s3_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/support/s3_replies.h"

namespace cacheshim::remote {
namespace {

TEST(S3Text, ListingsAreDecoded) {
  const auto listing = parse_s3_listing(listing_xml(
      "<Name/><Contents><Key>a%2Bb+c&amp;%26&#x41;&#233;</Key><Owner><ID>x</ID></Owner></Contents>\n<Contents>\n<Key>d"
      "</Key></Contents><IsTruncated>true</IsTruncated><NextContinuationToken>a+&lt;%41</NextContinuationToken>"
      "<EncodingType>url</EncodingType><CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>"));
  ASSERT_TRUE(listing);
  EXPECT_EQ(listing->names, (std::vector<std::string>{"a+b c&&A\xC3\xA9", "d"}));
  EXPECT_EQ(listing->next, "a+<%41");
  const auto plain = parse_s3_listing(
      listing_xml("<IsTruncated>false</IsTruncated><Contents><Key>a+%41</Key></Contents>"));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->names, std::vector<std::string>{"a+%41"});
}

TEST(S3Text, MalformedListingsAreRejected) {
  const std::string end = "<IsTruncated>false</IsTruncated>";
  ASSERT_TRUE(parse_s3_listing(listing_xml(end)));
  for (const std::string& content :
       {std::string(),
        end + end,
        std::string("<IsTruncated>yes</IsTruncated>"),
        std::string("<IsTruncated>true</IsTruncated>"),
        end + "<a>",
        end + "</a>",
        end + "<a></b>",
        end + "<a><b></a></b>",
        end + "<!-- c -->",
        end + "<![CDATA[x]]>",
        end + "<?pi x?>",
        end + "text",
        end + "<a>x<b/></a>",
        end + "<a>&unknown;</a>",
        end + "<a>&amp</a>",
        end + "<a>&#x110000;</a>",
        end + "<a>&#;</a>",
        end + "<a>&#-1;</a>",
        end + "< a></ a>",
        end + "<>" + "</>",
        end + "<EncodingType>url</EncodingType><Contents><Key>%4</Key></Contents>",
        end + "<EncodingType>url</EncodingType><Contents><Key>%zz</Key></Contents>",
        end + "<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>"})
    EXPECT_FALSE(parse_s3_listing(listing_xml(content))) << content;
  for (const std::string& xml :
       {std::string(), std::string("</>"), std::string("<"), std::string("<?xml "),
        listing_xml(end) + "<a/>", listing_xml(end) + "x", "x" + listing_xml(end),
        "<!DOCTYPE a [<!ENTITY b \"c\">]>" + listing_xml(end), "<Error>" + end + "</Error>"})
    EXPECT_FALSE(parse_s3_listing(xml)) << xml;
}

}  // namespace
}  // namespace cacheshim::remote
