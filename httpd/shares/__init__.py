"""What keys share: no key alone takes all of something that is limited."""
