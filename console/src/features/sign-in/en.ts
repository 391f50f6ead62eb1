export const en = {
  "sign-in.title": "Sign in",
  "sign-in.email": "E-mail address",
  "sign-in.password": "Password",
  "sign-in.go": "Sign in",
  "sign-in.wrong": "The address or the password is wrong.",
  "sign-in.ended": "Your session has ended. Sign in again to go on.",
  "welcome.title": "Welcome to Thingway",
  "welcome.text": "You are signed in as {email}. Choose the password that you will sign in with from now on.",
  "welcome.password": "New password",
  "welcome.rule": "8 to 63 characters, with a capital, a small letter and a digit.",
  "welcome.go": "Begin",
  "welcome.used": "This link has been used: a password was chosen.",
};
