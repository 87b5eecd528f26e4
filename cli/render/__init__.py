"""Files made from nodes by templates, written anew when nodes change."""
